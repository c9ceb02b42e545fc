"""Files that want to do harm, made on the spot: each is a function that writes one; and the parts to make more of them."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile

HEAD, END = b"\x80\x02", b"."
BIG = 1_000_000


class Runs:
    """What a pickle makes of it runs a command."""

    def __init__(self, function, *arguments):
        self.how = function, arguments

    def __reduce__(self):
        return self.how


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value):
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(content)]) + content


def named(module, name):
    return f"c{module}\n{name}\n".encode()


def numbers(values):
    return b"(" + b"".join(map(number, values)) + b"t"


def dictionary(**entries):
    return b"}(" + b"".join(text(key) + value for key, value in entries.items()) + b"u"


def storage(count, key="0", kind="FloatStorage"):
    return b"(" + text("storage") + named("torch", kind) + text(key) + text("cpu") + number(count) + b"tQ"


def tensor(count=4, offset=0, shape=(4,), strides=(1,), **more):
    where = storage(count, **more) + number(offset) + numbers(shape) + numbers(strides)
    return named("torch._utils", "_rebuild_tensor_v2") + b"(" + where + b"\x89}tR"


def ours(value, key="weights"):
    """A checkpoint of ours with something at one place."""
    about = dictionary(family=text("yolov8"), name=text("yolov8n"), names=b"](" + text("a") + b"e", norm=text("batch"))
    entries = {"schema_version": b"K\x01", "kind": text("model"), "settings": b"}", "weights": b"}", "model": about}
    return HEAD + dictionary(**{**entries, key: value}) + END


def layer(kind="ultralytics.nn.tasks DetectionModel", **state):
    """An object of theirs with a state."""
    return named(*kind.split()) + b")\x81" + dictionary(**state) + b"b"


def theirs(model):
    return HEAD + dictionary(ema=model) + END


def megvii(stem, classes=None):
    """A checkpoint as YOLOX's authors write it."""
    weights = {"backbone.backbone.stem.conv.conv.weight": stem, "head.cls_preds.0.weight": classes or tensor()}
    return (
        HEAD
        + dictionary(model=b"}q\x00(" + b"".join(text(name) + value for name, value in weights.items()) + b"u")
        + END
    )


def laughs(begin, end):
    """Thirty generations, each holding the one before it ten times: a small program for 10 ** 30 values."""
    recalled = [b"q" + bytes([n]) + (b"h" + bytes([n])) * 9 + end for n in range(30)]
    return begin * 30 + b"N" + b"".join(recalled)


def doubled_layers(generations):
    """Layers that each hold the one before twice."""
    program = layer("torch.nn.modules.container Sequential", _modules=b"}")
    for n in range(generations):
        twice = dictionary(a=program + b"q" + bytes([n]), b=b"h" + bytes([n]))
        program = layer("torch.nn.modules.container Sequential", _modules=twice)
    return layer(_modules=dictionary(a=program))


def zipped(program, records=None, compress=zipfile.ZIP_STORED, folder="x"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compress) as out:
        for name, content in {
            "data.pkl": program,
            "version": b"3",
            "byteorder": b"little",
            "data/0": bytes(16),
            **(records or {}),
        }.items():
            out.writestr(f"{folder}/{name}" if folder else name, content)
    return file.getvalue()


def with_sizes(content, name, size):
    """The zip with other sizes of a record in its table of contents."""
    at = content.rindex(b"PK\x01\x02", 0, content.rindex(name))
    return content[: at + 20] + struct.pack("<II", size, size) + content[at + 28 :]


def overlapping(count, size):
    """A zip whose records are all the same bytes."""
    content = zipped(HEAD + b"N" + END, {"data/0": bytes(size)})
    at = content.rindex(b"PK\x01\x02")
    end = content.rindex(b"PK\x05\x06")
    entry, before = content[at:end], content[content.index(b"PK\x01\x02") : at]
    entries = b"".join(entry.replace(b"x/data/0", b"x/%06d" % n) for n in range(count))
    table = before + entries
    many = count + 3
    return (
        content[: content.index(b"PK\x01\x02")]
        + table
        + struct.pack(
            "<4sHHHHIIH", b"PK\x05\x06", 0, 0, many & 0xFFFF, many & 0xFFFF, len(table), content.index(b"PK\x01\x02"), 0
        )
    )


def header(entries, data=bytes(64), length=None):
    """A safetensors file."""
    said = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(said) if length is None else length) + said + data


def place(begin, end, shape=None, dtype="F32"):
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


def canary(path):
    """A command that leaves a trace."""
    return f"touch {path}"


def archives(trace):
    """Name -> (the content of a .pt, what is said of it)."""
    command = canary(trace)
    many = 100_000  # within the steps that are allowed
    deep = {
        "tuples": b")" + b"\x85" * many,
        "lists": b"]" * many + b"a" * (many - 1),
        "dictionaries": (b"}" + text("a")) * many + b"}" + b"s" * many,
        "a million tuples": b")" + b"\x85" * BIG,
    }
    state = dictionary(__setstate__=named("posix", "system"), __class__=named("ultralytics.nn", "C"))
    runs = pickle.dumps(Runs(os.system, command), protocol=2)[2:-1]
    return {
        "os.system in a dictionary": (zipped(ours(runs)), "posix.system"),
        "os.system alone, protocol 4": (zipped(pickle.dumps(Runs(os.system, command), protocol=4)), "posix.system"),
        "os.system in a model of theirs": (zipped(theirs(layer(_modules=runs))), "posix.system"),
        "os.system in a model of YOLOX": (zipped(megvii(runs)), "posix.system"),
        "a model of YOLOX in itself": (zipped(megvii(b"h\x00")), "no tensor|number of classes"),
        "a YOLOX of a billion classes": (zipped(megvii(tensor(), tensor(shape=(1 << 30, 0, 1, 1), strides=(0, 0, 0, 0)))), "classes"),
        "eval": (zipped(pickle.dumps(Runs(eval, f"open({str(trace)!r}, 'w')"), protocol=2)), "eval"),
        "exec, protocol 0": (zipped(pickle.dumps(Runs(exec, "1"), protocol=0)), "exec"),
        "a model of the GPL repository": (zipped(theirs(layer("models.yolo DetectionModel"))), "MIT project"),
        "getattr": (zipped(HEAD + named("builtins", "getattr") + END), "builtins.getattr"),
        "torch.load again": (zipped(HEAD + named("torch", "load") + text("other.pt") + b"\x85R" + END), "torch.load"),
        "a module of torch that is none of its layers": (zipped(HEAD + named("torch.nn.modules", "x") + END), "torch.nn.modules.x"),
        "__setstate__ as an attribute": (zipped(theirs(named("ultralytics.nn", "C") + b")\x81" + state + b"b")), "posix.system"),
        "a state for a class": (zipped(theirs(named("ultralytics.nn", "C") + b"}b")), "state to something that has none"),
        "a state for a function": (zipped(theirs(named("torch._utils", "_rebuild_parameter") + b"}b")), "that has none"),
        "a call of what was made": (zipped(theirs(layer() + b")R")), "calls something that it has made"),
        "INST": (zipped(HEAD + b"(iposix\nsystem\n" + END), "INST"),
        "an extension": (zipped(HEAD + b"\x82\x01" + END), "EXT1"),
        "a zip bomb": (zipped(ours(b"}") + bytes(BIG * 20), compress=zipfile.ZIP_DEFLATED), "compressed"),
        "a bomb as a tensor": (zipped(ours(tensor()), {"data/1": bytes(BIG * 20)}, zipfile.ZIP_DEFLATED), "compressed"),
        "records over each other": (overlapping(2000, BIG), "larger than the file"),
        "too many records": (overlapping(100_000, 0), "table of contents"),
        "a size that is not true": (with_sizes(zipped(ours(b"}")), b"x/data/0", 1 << 31), "larger than the file"),
        "a size a little too large": (with_sizes(zipped(ours(dictionary(a=tensor(8)))), b"x/data/0", 32), "x/data/0"),
        "a storage larger than its record": (zipped(ours(dictionary(a=tensor(1 << 40)))), "elements of 4 bytes"),
        "a storage that is not there": (zipped(ours(dictionary(a=tensor(key="7")))), "is missing"),
        "a storage outside": (zipped(ours(dictionary(a=tensor(key="../../etc/passwd")))), "is missing"),
        "a tensor past its storage": (zipped(ours(dictionary(a=tensor(shape=(5,))))), "storage of 4 elements"),
        "an offset past the storage": (zipped(ours(dictionary(a=tensor(offset=1 << 20)))), "storage of 4 elements"),
        "strides past the storage": (zipped(ours(dictionary(a=tensor(strides=(1 << 30,))))), "storage of 4 elements"),
        "one number many times": (zipped(ours(dictionary(a=tensor(shape=(1 << 30,), strides=(0,))))), "storage of 4 elements"),
        "one storage in many tensors": (
            zipped(ours(dictionary(**{f"t{n}": tensor(250_000, shape=(250_000,)) for n in range(50)})), {"data/0": bytes(BIG)}),
            "together are larger",
        ),
        "a negative shape": (zipped(ours(dictionary(a=tensor(shape=(-4,))))), "a tensor's shape"),
        "negative strides": (zipped(ours(dictionary(a=tensor(strides=(-1,))))), "a tensor's strides"),
        "a negative offset": (zipped(ours(dictionary(a=tensor(offset=-4)))), "a tensor's offset"),
        "a shape beyond all numbers": (zipped(ours(dictionary(a=tensor(shape=(1 << 62, 1 << 62), strides=(0, 0))))), "a tensor's shape"),
        "a thousand dimensions": (zipped(ours(dictionary(a=tensor(shape=(1,) * 1000, strides=(1,) * 1000)))), "a tensor's shape"),
        **{f"{kind} nested without end": (zipped(ours(program)), "nested|steps") for kind, program in deep.items()},
        "tuples nested without end, alone": (zipped(HEAD + deep["tuples"] + END), "nested"),
        "a list in itself": (zipped(ours(b"]q\x00h\x00a")), "nested"),
        "a billion laughs in tuples": (zipped(ours(laughs(b"(", b"t"))), "values|nested"),
        "a billion laughs in lists": (zipped(ours(laughs(b"](", b"e"))), "values|nested"),
        "a billion laughs as a key": (zipped(ours(b"}" + laughs(b"(", b"t") + b"Ns")), "as a key"),
        "a billion layers": (zipped(theirs(doubled_layers(25))), "layers"),
        "keys that collide": (zipped(ours(b"}(" + number(((1 << 61) - 1) * 3) + b"Nu")), "as a key"),
        "sets of sets": (
            zipped(HEAD + b"](" + b"K\x01" * 5000 + b"eq\x00" + (named("builtins", "set") + b"h\x00\x85R") * 5000 + END),
            "steps",
        ),
        "a huge pickle": (zipped(HEAD + b"N" * (17 * BIG) + END), "16,777,216 are read"),
        "too many steps": (zipped(HEAD + b"}" * (2 * BIG) + END), "steps"),
        "a memo of billions": (zipped(HEAD + b"Nr\xff\xff\xff\xff" + END), "no visiontrain checkpoint"),
        "text longer than the file": (zipped(HEAD + b"X\xff\xff\xff\x7f" + END), "damaged"),
        "nothing on the stack": (zipped(HEAD + b"R" + END), "damaged"),
        "an unknown instruction": (zipped(HEAD + b"\xff" + END), "damaged"),
        "no end": (zipped(HEAD + b"N"), "damaged|too early"),
        "no pickle": (zipped(b""), "damaged|too early"),
        "a record outside": (zipped(ours(b"}"), {"../../../tmp/x": b"x"}), "one folder"),
        "an absolute record": (zipped(ours(b"}"), folder="/etc"), "one folder|data.pkl"),
        "two folders": (zipped(ours(b"}")).replace(b"x/data/0", b"y/data/0"), "one folder"),
        "a record twice": (zipped(ours(b"}"), {"data/1": b""}).replace(b"x/data/1", b"x/data/0"), "twice"),
        "numbers of another machine": (zipped(ours(b"}"), {"byteorder": b"big"}), "endian"),
        "no zip": (b"\x80\x02}.", "no zip"),
        "nothing": (b"", "no zip"),
        "half a zip": (zipped(ours(b"}"))[:200], "no zip"),
        "a zip that ends in its table": (zipped(ours(b"}"))[:-40], "no zip"),
        "a program, as torch wrote it before 1.6": (pickle.dumps(Runs(os.system, command), protocol=2), "no zip"),
        "a plain state dict": (zipped(HEAD + dictionary(a=tensor()) + END), "no visiontrain checkpoint"),
        "weights that are none": (zipped(ours(text("x"))), "weights"),
        "names for the terminal": (zipped(HEAD + named("os\x1b[2J", "system") + END), r"os\?\[2J\.system"),
        "names that are none": (zipped(ours(b"K\x01", "model")), "model"),
    }  # fmt: skip


def safetensors():
    """Name -> (the content of a .safetensors, what is said of it)."""
    good = json.dumps(place(0, 64)).encode()
    return {
        "a header longer than the file": (header({}, length=1 << 62), "header should have"),
        "a huge header": (header(b" " * (5 << 20)), "are read at most"),
        "a tensor past the end": (header({"a": place(0, 128)}), "'a' has bytes 0 to 128"),
        "tensors over each other": (header({"a": place(0, 64), "b": place(32, 64)}), "'b' has bytes"),
        "a hole": (header({"a": place(0, 32), "b": place(48, 64)}), "'b' has bytes"),
        "bytes of nobody": (header({"a": place(0, 32)}), "end at byte 32 of 64"),
        "a shape that is larger": (header({"a": place(0, 64, [1000])}), "not those of a F32"),
        "a shape beyond all numbers": (header({"a": place(0, 64, [1 << 62, 1 << 62])}), "no dtype, shape"),
        "a negative shape": (header({"a": place(0, 64, [-4, -4])}), "no dtype, shape"),
        "negative offsets": (header({"a": place(-64, 0)}), "no dtype, shape"),
        "an unknown dtype": (header({"a": place(0, 64, dtype="OBJECT")}), "no dtype, shape"),
        "no entry": (header({"a": 1}), "no dtype, shape"),
        "a name twice": (header(b'{"a":' + good + b',"a":' + good + b"}"), "twice"),
        "nested without end": (header(b"[" * 900_000), "no JSON"),
        "no JSON": (header(b"\xff\xfe{"), "no JSON"),
        "a list": (header([]), "no list of tensors"),
        "no text in it": (header({"a": place(0, 64), "__metadata__": {"visiontrain": 1}}), "which model"),
        "of another program": (header({"a": place(0, 64)}), "which model"),
        "metadata nested without end": (header({"__metadata__": {"visiontrain": "[" * 900_000}}, b""), "no JSON"),
        "an empty description": (header({"__metadata__": {"visiontrain": "{}"}}, b""), "no visiontrain checkpoint"),
        "nothing": (b"", "header should have|no JSON"),
        "half of a length": (b"\x08\x00", "header should have"),
    }
