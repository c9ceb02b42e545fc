"""Pickles read as data, by a machine of our own that imports nothing and calls nothing.

A pickle is a program, and the standard library's reader runs it. Here the names in it stay names and its objects stay
records of what was stored, so there is nothing that a file could have run. Only tensors and plain values come out alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pickletools import genops
from typing import Any

MOST_BYTES = 16 << 20  # of a program; a detector's has a tenth of a megabyte, a run's checkpoint a few times that
MOST_STEPS = 1_000_000  # instructions, each of which makes at most one small object

# torch's name of a storage -> the dtype's name and the bytes of an element
STORAGES = {
    "DoubleStorage": ("float64", 8),
    "FloatStorage": ("float32", 4),
    "HalfStorage": ("float16", 2),
    "BFloat16Storage": ("bfloat16", 2),
    "LongStorage": ("int64", 8),
    "IntStorage": ("int32", 4),
    "ShortStorage": ("int16", 2),
    "CharStorage": ("int8", 1),
    "ByteStorage": ("uint8", 1),
    "BoolStorage": ("bool", 1),
}


def printable(text: str, most: int) -> str:
    """Text of a file as a terminal may show it."""
    return "".join(c if c.isprintable() else "?" for c in text[:most])


class Refused(Exception):
    """The reason why a file is not read; who knows the file names it."""


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function that a pickle names. It is not looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return printable(f"{self.module}.{self.name}", 120)


@dataclass(slots=True, eq=False)
class Thing:
    """An object of a class that stays unknown: the name of the class, what it was made of, and its state."""

    kind: Name
    made_of: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """So many elements under a key of the archive; ``kind`` is one of STORAGES."""

    kind: str
    key: str
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A view of a storage that was found to lie within it and to have no more elements; offset and strides in elements."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * STORAGES[self.storage.kind][1]


def follow(program: bytes) -> Any:
    """What a pickle stands for: plain values, StoredTensors, and Things where it has objects of classes.

    Raises:
        Refused: a name or an instruction that no checkpoint needs, or a program that is damaged or too long.
    """
    if len(program) > MOST_BYTES:
        raise Refused(f"its pickle has {len(program):,} bytes; {MOST_BYTES:,} are read at most")
    machine = _Machine()
    try:
        for steps, (opcode, argument, _) in enumerate(genops(program)):
            machine.spend(1)
            if opcode.name == "STOP":
                return machine.pop()
            step = _STEPS.get(opcode.name)
            if step is None:
                raise Refused(
                    f"its pickle has the instruction {opcode.name} (number {steps}), which checkpoints do not need"
                )
            step(machine, argument)
    except ValueError as error:  # what genops raises of a program that is no pickle
        raise Refused(f"its pickle is damaged: {str(error)[:120]}") from error
    raise Refused("its pickle ends too early")


class _Machine:
    """A stack of values, the stacks below it, and what was memorised."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.left = MOST_STEPS

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise Refused(f"its pickle takes more than {MOST_STEPS:,} steps; no checkpoint is that large")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack:
            raise Refused("its pickle is damaged: it takes a value where there is none")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        """The last value, which must be of a kind."""
        if not self.stack or type(self.stack[-1]) is not kind:
            raise Refused(f"its pickle is damaged: it adds to something that is no {kind.__name__}")
        return self.stack[-1]

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        if not self.below:
            raise Refused("its pickle is damaged: it looks for a mark that is not there")
        values, self.stack = self.stack, self.below.pop()
        return values

    def pop_tuple(self, count: int) -> None:
        self.push(tuple(reversed([self.pop() for _ in range(count)])))

    def recall(self, number: int) -> None:
        if number not in self.memo:
            raise Refused("its pickle is damaged: it recalls what was not memorised")
        self.push(self.memo[number])

    def memorise(self, number: int | None) -> None:
        value = self.pop()
        self.push(value)
        self.memo[len(self.memo) if number is None else number] = value

    def set_items(self, values: list[Any]) -> None:
        target = self.top(dict)
        if len(values) % 2:
            raise Refused("its pickle is damaged: a key without a value")
        target.update(zip(map(_key, values[::2]), values[1::2], strict=True))

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.top(dict)[_key(key)] = value

    def append(self) -> None:
        value = self.pop()
        self.top(list).append(value)

    def name_on_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise Refused("its pickle is damaged: a name that is no text")
        self.push(_allowed(Name(module, name)))

    def make(self) -> None:
        """An object by its class or function: known ones are made here by hand, of others it is kept how they were made."""
        made_of, kind = self.pop(), self.pop()
        if type(kind) is not Name or type(made_of) is not tuple:
            raise Refused("its pickle calls something that it has made itself, which checkpoints do not need")
        self.spend(len(made_of))
        maker = _MAKERS.get(f"{kind.module}.{kind.name}")
        self.push(maker(self, made_of) if maker else Thing(kind, made_of))

    def build(self) -> None:
        """The state of an object. It is kept beside it; nothing is set by its names."""
        state = self.pop()
        target = self.stack[-1] if self.stack else None
        if type(target) is Thing:
            target.state = state
        elif type(target) is not dict:  # an OrderedDict's attributes (a state dict has versions there) are not needed
            raise Refused("its pickle gives a state to something that has none")

    def stored(self) -> None:
        """What torch keeps outside of the pickle: a storage."""
        match self.pop():
            case ("storage", Name("torch", kind), str(key), _, int(count)) if kind in STORAGES and count >= 0:
                self.push(Storage(kind, key, count))
            case _:
                raise Refused("its pickle refers to something outside that is no storage of numbers")


def _key(key: Any) -> Any:
    """Nothing whose hash takes long, or can be chosen to collide."""
    if type(key) in (str, bool) or (type(key) is int and abs(key) < 1 << 60):
        return key
    raise Refused(f"its pickle has a {type(key).__name__} as a key; text and numbers are read")


def _allowed(name: Name) -> Name:
    whole = f"{name.module}.{name.name}"
    inert = name.module.startswith(_INERT_MODULES) or name.module in _INERT or whole in _INERT
    if inert or whole in _MAKERS or (name.module == "torch" and name.name in STORAGES):
        return name
    if name.module in _OF_THE_GPL:
        raise Refused(
            f"its pickle names {name}: it stores a model as objects of the yolov5 or yolov9 repository (AGPL and GPL), which are "
            "not read. Of YOLOv9 the v9-t, s, m and c.pt of the MIT project are (github.com/MultimediaTechLab/YOLO)"
        )
    raise Refused(f"its pickle names {name}, which no detector's weights need; it was not looked up, nothing was run")


def _set(machine: _Machine, made_of: tuple[Any, ...]) -> set[Any]:
    values = made_of[0] if made_of else []
    if len(made_of) > 1 or type(values) not in (list, tuple):
        raise Refused("its pickle makes a set of something that is no list")
    machine.spend(len(values))
    return {_key(value) for value in values}


def _ordered_dict(_: _Machine, made_of: tuple[Any, ...]) -> dict[Any, Any]:
    if made_of:
        raise Refused("its pickle makes an OrderedDict in a way that torch does not")
    return {}


def _size(_: _Machine, made_of: tuple[Any, ...]) -> tuple[int, ...]:
    return _counts(made_of[0] if len(made_of) == 1 else None, "a size")


def _parameter(_: _Machine, made_of: tuple[Any, ...]) -> StoredTensor:
    if not made_of or type(made_of[0]) is not StoredTensor:
        raise Refused("its pickle makes a parameter of something that is no tensor")
    return made_of[0]


def _tensor(_: _Machine, made_of: tuple[Any, ...]) -> StoredTensor:
    """A tensor as torch stores it: (storage, offset, shape, strides, ...), no larger than its storage."""
    if len(made_of) < 4 or type(made_of[0]) is not Storage:
        raise Refused("its pickle makes a tensor of something that is no storage")
    storage: Storage = made_of[0]
    (offset,) = _counts((made_of[1],), "a tensor's offset")
    shape, strides = _counts(made_of[2], "a tensor's shape"), _counts(made_of[3], "a tensor's strides")
    if len(shape) != len(strides):
        raise Refused(f"it has a tensor of {len(shape)} dimensions with {len(strides)} strides")
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if prod(shape) and (last >= storage.count or prod(shape) > storage.count):
        raise Refused(
            f"it has a tensor {shape} with strides {strides} at {offset}, of a storage of {storage.count} elements"
        )
    return StoredTensor(storage, offset, shape, strides)


def _counts(values: Any, what: str) -> tuple[int, ...]:
    """Whole numbers from 0, a few of them, none so large that arithmetic could go wrong."""
    if type(values) is tuple and len(values) <= 8 and all(type(n) is int and 0 <= n < 1 << 40 for n in values):
        return values
    raise Refused(f"it has {what} that is none: {str(values)[:80] if _short(values) else type(values).__name__}")


def _short(values: Any) -> bool:
    return type(values) is tuple and len(values) <= 8 and all(type(n) is int for n in values)


# What is made by hand; of everything else that may be named, the name is kept and no more.
_MAKERS: dict[str, Callable[[_Machine, tuple[Any, ...]], Any]] = {
    "builtins.set": _set,
    "__builtin__.set": _set,
    "collections.OrderedDict": _ordered_dict,
    "torch.Size": _size,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_tensor_v2": _tensor,
}
_INERT_MODULES = ("ultralytics.", "torch.nn.modules.")
_OF_THE_GPL = ("models.yolo", "models.common", "models.experimental")
_INERT = {
    "pathlib",  # paths among the settings, which old files keep as objects
    "torch.device",  # of a loss that was stored with its model
    "numpy.core.multiarray.scalar",  # a score
    "numpy._core.multiarray.scalar",
    "numpy.dtype",
    "_codecs.encode",  # its bytes
}


def _constant(value: Any) -> Callable[[_Machine, Any], None]:
    return lambda machine, _: machine.push(value)


def _argument(machine: _Machine, value: Any) -> None:
    machine.push(value)


def _global(machine: _Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    machine.push(_allowed(Name(module, name)))


def _nothing(machine: _Machine, _: Any) -> None:
    """Of a frame or a version there is nothing to do."""


_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _nothing,
    "FRAME": _nothing,
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"), _argument),
    "EMPTY_TUPLE": _constant(()),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "MARK": lambda machine, _: machine.mark(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.pop_tuple(1),
    "TUPLE2": lambda machine, _: machine.pop_tuple(2),
    "TUPLE3": lambda machine, _: machine.pop_tuple(3),
    "APPEND": lambda machine, _: machine.append(),
    "APPENDS": lambda machine, _: _extend(machine, machine.since_mark()),
    "SETITEM": lambda machine, _: machine.set_item(),
    "SETITEMS": lambda machine, _: machine.set_items(machine.since_mark()),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, number: machine.recall(number)),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), lambda machine, number: machine.memorise(number)),
    "GLOBAL": _global,
    "STACK_GLOBAL": lambda machine, _: machine.name_on_stack(),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda machine, _: machine.make()),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.stored(),
}


def _extend(machine: _Machine, values: list[Any]) -> None:
    machine.top(list).extend(values)
