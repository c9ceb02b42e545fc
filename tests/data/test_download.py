"""Downloads: only when asked for, from a server that cuts, lies and moves; archives that try to get out."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import stat
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from data import kinds

from visiontrain import cli, fetching
from visiontrain.data import unpack
from visiontrain.data.description import draw_here, load_description
from visiontrain.data.index import read_split
from visiontrain.errors import DataError
from visiontrain.paths import datasets_dir
from visiontrain.source import untrusted

NAMES = ("images/train/a", "images/train/b", "images/val/c")


def members(top: str = "") -> dict[str, bytes]:
    """A small data set by names in an archive."""
    found = {}
    for number, name in enumerate(NAMES):
        noise = np.random.default_rng(number).integers(0, 255, (24, 32, 3), np.uint8)
        found[f"{top}{name}.png"] = kinds.png(noise, 2)
        found[f"{top}{name.replace('images', 'labels')}.txt"] = b"0 0.5 0.5 0.4 0.4\n"
    return found


def zipped(files: dict[str, bytes]) -> bytes:
    with io.BytesIO() as raw:
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return raw.getvalue()


def tarred(files: dict[str, bytes], *extra: tarfile.TarInfo, mode: str = "w:gz") -> bytes:
    with io.BytesIO() as raw:
        with tarfile.open(fileobj=raw, mode=mode) as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            for info in extra:
                archive.addfile(info)
        return raw.getvalue()


@pytest.fixture
def describe(tmp_path, user_cache):
    """Write a description whose pictures are not there."""

    def write(wanted: object, **more: object) -> Path:
        file = tmp_path / "mine" / "mine.yaml"
        file.parent.mkdir(exist_ok=True)
        content = {"train": "images/train", "val": "images/val", "names": ["thing"], "download": wanted, **more}
        file.write_text(yaml.safe_dump(content))
        return file

    return write


def told(file: Path, **settings: bool) -> str:
    with pytest.raises(DataError) as caught:
        read_split(load_description(file, **(settings or {"download": True})), "train")
    return str(caught.value)


def left(cache: Path) -> list[str]:
    """Files and folders in the user's cache but locks."""
    return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_nothing_is_fetched_unasked_and_the_error_says_how(server, describe, user_cache):
    server.files["d.zip"] = zipped(members())
    file = describe(server.url("d.zip"))
    said = told(file, download=False)
    assert server.log == [] and not user_cache.exists()
    assert "Add download=true to fetch" in said and server.url("d.zip") in said and "not verified" in said
    (home,) = re.findall(r"into (\S+), or unpack it yourself", said)
    assert Path(home).parent == user_cache / "datasets" and "images/train' is not there" in said


def test_once_fetched_it_is_there_for_every_later_command(server, describe, user_cache, capsys):
    server.files["d.zip"] = zipped(members())
    file = describe(server.url("d.zip"))
    before = sorted(file.parent.iterdir())
    words = ["check", f"data={file}", "imgsz=64", "preflight=false"]
    assert cli.main([*words, "download=true"]) == 0
    assert len(server.log) == 1 and len(left(user_cache)) == 6  # the archive is gone
    assert sorted(file.parent.iterdir()) == before
    assert cli.main([*words, "download=true"]) == cli.main(words) == 0
    assert len(server.log) == 1
    capsys.readouterr()


def test_pictures_that_are_there_are_used_and_nothing_is_fetched(server, describe):
    file = describe(server.url("d.zip"))
    for name, content in members().items():
        (file.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (file.parent / name).write_bytes(content)
    assert load_description(file, download=True).root == file.parent and server.log == []


@pytest.mark.parametrize("sum_known", [False, True])
def test_a_cut_is_resumed_where_it_was(server, describe, sum_known):
    content = server.files["d.zip"] = zipped(members())
    server.cuts = [1000, 700, 1, 0]
    known = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} if sum_known else {}
    index = read_split(load_description(describe({"url": server.url("d.zip"), **known}), download=True), "train")
    assert len(index) == 2
    assert server.log == ["", "bytes=1000-", "bytes=1700-", "bytes=1701-", "bytes=1701-"]
    assert server.sent == len(content)


def test_a_later_command_goes_on_with_what_an_earlier_one_got(server, describe, user_cache):
    server.files["d.zip"] = zipped(members())
    server.cuts = [1000, *[0] * fetching.FAILURES]
    file = describe(server.url("d.zip"))
    said = told(file)
    assert "the same command goes on from there" in said and "and unpack it so that these are there" in said
    assert str(user_cache / "datasets") in said
    server.log.clear()
    assert len(read_split(load_description(file, download=True), "train")) == 2
    assert server.log == ["bytes=1000-"]


def test_without_ranges_a_cut_begins_anew(server, describe):
    server.files["d.zip"] = zipped(members())
    server.ranges, server.cuts = False, [1000]
    assert len(read_split(load_description(describe(server.url("d.zip")), download=True), "train")) == 2
    assert server.sent == 1000 + len(server.files["d.zip"])


def test_a_file_that_changed_meanwhile_is_not_patched_together(server, describe):
    old, new = zipped(members()), zipped(members() | {"labels/val/c.txt": b"0 0.4 0.4 0.2 0.2\n"})
    server.files["d.zip"], server.cuts = old, [1000, *[0] * fetching.FAILURES]
    file = describe(server.url("d.zip"))
    told(file)
    server.files["d.zip"], server.tag, server.sent = new, '"2"', 0
    description = load_description(file, download=True)
    assert server.sent == len(new) and len(read_split(description, "val")) == 1


@pytest.mark.parametrize("tag", ["", 'W/"1"'])
def test_without_a_version_and_without_a_sum_nothing_is_resumed(server, describe, tag):
    server.files["d.zip"], server.cuts, server.tag = zipped(members()), [1000], tag
    load_description(describe(server.url("d.zip")), download=True)
    assert server.log == ["", ""]


def test_a_partial_file_that_is_complete_is_used(server, describe, user_cache):
    """The connection broke after the last byte: the server has no more to give (416)."""
    server.files["d.zip"], server.cuts = zipped(members()), [1000, *[0] * fetching.FAILURES]
    file = describe(server.url("d.zip"))
    told(file)
    (part,) = (user_cache / "downloads").glob("*.part")
    part.write_bytes(server.files["d.zip"])
    server.sent = 0
    assert len(read_split(load_description(file, download=True), "train")) == 2
    assert server.sent == 0


def test_a_partial_file_that_is_too_long_begins_anew(server, describe, user_cache):
    server.files["d.zip"], server.cuts = zipped(members()), [1000, *[0] * fetching.FAILURES]
    file = describe(server.url("d.zip"))
    told(file)
    (part,) = (user_cache / "downloads").glob("*.part")
    part.write_bytes(server.files["d.zip"] + bytes(9))
    server.sent = 0
    assert len(read_split(load_description(file, download=True), "train")) == 2
    assert server.sent == len(server.files["d.zip"])


@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"sha256": "0" * 64}, "its SHA-256 is {digest} and the description says 000"),
        ({"bytes": 12}, "the server's file has {size} bytes and the description says 12"),
    ],
)
def test_another_file_than_was_described_is_not_used(server, describe, user_cache, known, message):
    content = server.files["d.zip"] = zipped(members())
    said = told(describe({"url": server.url("d.zip"), **known}))
    assert message.format(digest=hashlib.sha256(content).hexdigest(), size=len(content)) in said
    assert left(user_cache) == []


def test_more_than_was_announced_is_not_taken(server, describe, user_cache):
    server.files["d.zip"], server.length = zipped(members()), False
    assert "more than 12 bytes come" in told(describe({"url": server.url("d.zip"), "bytes": 12}))
    (part,) = (user_cache / "downloads").glob("*.part")
    assert part.stat().st_size <= 12


def test_a_size_that_nobody_announced_has_a_limit(server, describe, monkeypatch):
    server.files["d.zip"] = zipped(members())
    monkeypatch.setattr(fetching, "MOST_BYTES", 100)
    assert f"write bytes: {len(server.files['d.zip'])} to its download" in told(describe(server.url("d.zip")))
    server.length = False
    assert "more than 100 bytes come" in told(describe(server.url("d.zip")))


def test_a_full_disk_is_told_before_anything_comes(server, describe, monkeypatch):
    server.files["d.zip"] = zipped(members())
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda folder: type("", (), {"free": 100}))
    assert "are free; make room, or set VISIONTRAIN_CACHE" in told(describe(server.url("d.zip")))
    assert server.sent <= 100_000


def test_a_file_that_is_not_there_is_told_at_once(server, describe):
    assert "the server answers 404" in told(describe(server.url("gone.zip")))
    assert len(server.log) == 1


def test_without_a_network_it_says_what_to_fetch_and_where_to_put_it(server, describe, user_cache):
    server.files["d.zip"] = zipped(members())
    file = describe(server.url("d.zip"))
    server.shutdown()
    server.server_close()
    said = told(file)
    assert "cannot be fetched: Connection refused" in said and server.url("d.zip") in said
    places = [Path(line.strip()) for line in said.splitlines() if line.endswith(("/images/train", "/images/val"))]
    assert len(places) == 2
    home = places[0].parents[1]
    for name, content in members().items():  # as told
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)
    assert len(read_split(load_description(file), "train")) == 2


def test_redirects_lead_only_where_a_description_might(server, describe):
    server.files["d.zip"] = zipped(members())
    server.moved = {"here.zip": server.url("d.zip")}
    assert len(read_split(load_description(describe(server.url("here.zip")), download=True), "train")) == 2
    for target in ("http://example.com/d.zip", "file:///etc/passwd", "ftp://example.com/d.zip"):
        server.moved["there.zip"] = target
        said = told(describe(server.url("there.zip")))
        assert "is not followed" in said or "is not allowed" in said  # the second is Python's own


def test_two_at_once_fetch_once(server, describe, user_cache):
    server.files["d.zip"] = zipped(members())
    file, found = describe(server.url("d.zip")), []
    both = [threading.Thread(target=lambda: found.append(load_description(file, download=True).root)) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(server.log) == 1 and len(set(found)) == 1 and len(left(user_cache)) == 6


def test_a_file_address_is_unpacked_where_it_lies(describe, tmp_path, user_cache):
    archive = tmp_path / "with space.zip"
    archive.write_bytes(zipped(members()))
    assert len(read_split(load_description(describe(archive.as_uri()), download=True), "train")) == 2
    assert archive.is_file() and not [name for name in left(user_cache) if "zip" in name]
    assert "there is no file" in told(describe((tmp_path / "gone.zip").as_uri()))


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar", "top folder", "two archives"])
def test_archives(server, describe, user_cache, kind):
    files = members()
    server.files = {
        "zip": zipped(files),
        "tar.gz": tarred(files),
        "tar": tarred(files, mode="w"),
        "top folder": zipped({"readme.txt": b"", **members("mine/")}),
        "train": zipped({k.removeprefix("images/"): v for k, v in files.items() if "images" in k}),
        "labels": tarred({k: v for k, v in files.items() if "labels" in k}),
    }
    two = [{"url": server.url("train"), "to": "images"}, server.url("labels")]
    wanted = two if kind == "two archives" else server.url(kind.replace(" ", "%20"))
    server.files["top%20folder"] = server.files["top folder"]
    index = read_split(load_description(describe(wanted), download=True), "train")
    assert len(index) == index.targets == 2 and not index.findings
    names = [name.split("/", 2)[2] for name in left(user_cache)]
    assert names == sorted(files)


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def linked_zip() -> bytes:
    with io.BytesIO() as raw:
        with zipfile.ZipFile(raw, "w") as archive:
            info = zipfile.ZipInfo("images")
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(info, "/etc")
        return raw.getvalue()


def long_header() -> bytes:
    """A tar whose extended header alone would fill the memory."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 32
    return gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(2048))


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


OUT = "reaches out of the folder"
NO_FILE = "is a link or a device"
TRICKS = {
    "zip, up": (lambda: zipped({"../out.txt": b"x"}), OUT),
    "zip, up inside": (lambda: zipped({"images/../../out.txt": b"x"}), OUT),
    "zip, absolute": (lambda: zipped({"/tmp/out.txt": b"x"}), OUT),
    "zip, Windows": (lambda: zipped({"..\\out.txt": b"x"}), OUT),
    "zip, a drive": (lambda: zipped({"C:\\out.txt": b"x"}), OUT),
    "zip, a link": (linked_zip, NO_FILE),
    "tar, up": (lambda: tarred({"a/../../out.txt": b"x"}), OUT),
    "tar, absolute": (lambda: tarred({"/out.txt": b"x"}), OUT),
    "tar, a link": (lambda: tarred({}, link("images", "/etc", tarfile.SYMTYPE)), NO_FILE),
    "tar, a link inside": (lambda: tarred({"a": b"x"}, link("b", "a", tarfile.SYMTYPE)), NO_FILE),
    "tar, a hard link": (lambda: tarred({"a": b"x"}, link("b", "../../a", tarfile.LNKTYPE)), NO_FILE),
    "tar, a device": (lambda: tarred({}, link("null", "", tarfile.CHRTYPE)), NO_FILE),
    "tar, a pipe": (lambda: tarred({}, link("pipe", "", tarfile.FIFOTYPE)), NO_FILE),
    "tar, a header without end": (long_header, "has a header of"),
    "a web page": (lambda: b"<!DOCTYPE html><html>sign in</html>", "it begins with b'<!DOCTYPE html>"),
    "zip, cut": (lambda: half(zipped(members())), "no zip, tar or tar.gz"),
    "tar.gz, cut": (lambda: half(tarred(members())), "damaged"),
    "zip, damaged": (lambda: zipped(members()).replace(b"IDAT", b"IDAX"), ""),
}


@pytest.mark.parametrize("name", TRICKS)
def test_an_archive_that_cannot_be_trusted_leaves_nothing(server, describe, user_cache, tmp_path, name):
    make, reason = TRICKS[name]
    server.files["d"] = make()
    if name == "zip, damaged":
        content = bytearray(zipped(members()))
        content[80] ^= 0xFF
        server.files["d"] = bytes(content)
    said = told(describe(server.url("d")))
    assert reason in said and "it is not used" in said
    assert left(user_cache) == [] and not list((user_cache / "datasets").iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "mine"]


@pytest.mark.parametrize("make", [zipped, tarred])
def test_bombs(server, describe, user_cache, monkeypatch, make):
    monkeypatch.setattr(unpack, "ALWAYS", 10_000)
    server.files["d"] = make({"images/train/a.png": bytes(10_000_000)})
    assert "unpacks to more than 100 times its" in told(describe(server.url("d")))
    noise = np.random.default_rng(0).bytes(500)
    server.files["f"] = make({f"{number}.png": noise + bytes(30_000) for number in range(20)})
    monkeypatch.setattr(unpack, "MOST_TIMES", 30)  # each is small enough, all together are not
    assert "unpacks to more than 30 times its" in told(describe(server.url("f")))
    monkeypatch.setattr(unpack, "MOST_FILES", 3)
    server.files["e"] = make(members())
    assert "holds more than 3 files" in told(describe(server.url("e")))
    assert left(user_cache) == []


def test_a_zip_that_says_less_than_it_holds_is_counted(server, describe, user_cache, monkeypatch):
    monkeypatch.setattr(unpack, "ALWAYS", 10_000)
    content = zipped({"images/train/a.png": bytes(10_000_000)})
    lying = content.replace((10_000_000).to_bytes(4, "little"), (5).to_bytes(4, "little"))
    assert lying != content
    server.files["d"] = lying
    assert "it is not used" in told(describe(server.url("d")))
    assert left(user_cache) == []


def test_an_archive_without_what_the_description_names_is_refused(server, describe, user_cache):
    server.files["d.zip"] = zipped({"pictures/a.png": b"x"})
    said = told(describe(server.url("d.zip")))
    assert "unpacked, without images/train, images/val; it holds pictures" in said
    assert not list((user_cache / "datasets").iterdir())


def test_a_folder_that_is_there_but_not_complete_is_left_alone(server, describe, user_cache):
    file = describe(server.url("d.zip"))
    (home,) = re.findall(r"into (\S+), or", told(file, download=False))
    (Path(home) / "images/train").mkdir(parents=True)
    (Path(home) / "images/train/mine.txt").write_text("mine")
    said = told(file)
    assert f"{home}: is there, without images/val" in said and f"complete or remove {home}" in said
    assert server.log == [] and left(user_cache)[-1].endswith("mine.txt")


def test_a_description_without_an_address_is_told_so(describe):
    file = describe(None)
    assert f"does not say where the data can be had; missing is {file.parent}/images/train" in told(file)


SCRIPTS = (
    "from utils import download\ndownload('https://example.com/a.zip')",
    "bash data/scripts/get_coco.sh",
    "https://example.com/get.py",
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_is_never_run_and_the_reason_is_told(describe, script, monkeypatch):
    monkeypatch.setattr("builtins.exec", None)
    monkeypatch.setattr("subprocess.Popen", None)
    file = describe(script)
    for asked in (False, True):
        assert "no code of a description is run" in told(file, download=asked)
    (file.parent / "images/train").mkdir(parents=True)
    (file.parent / "images/train/a.png").write_bytes(kinds.png(kinds.picture(), 2))
    (file.parent / "images/train/a.txt").write_text("")
    assert len(read_split(load_description(file), "train")) == 1  # the description serves for pictures that are there


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/d.zip", "give an https address"),
        ("http://127.0.0.1.example.com/d.zip", "give an https address"),
        ("http://127.0.0.1@example.com/d.zip", "give an https address"),
        ("ftp://example.com/d.zip", "no https:// or file:/// address"),
        ("file://example.com/d.zip", "no https:// or file:/// address"),
        ("data:application/zip;base64,AAAA", "no https:// or file:/// address"),
        ("https://example.com/zips/", "a folder; name the archives in it"),
        ("https://example.com", "a folder; name the archives in it"),
    ],
)
def test_addresses_that_are_not_trusted(describe, url, reason):
    assert reason in told(describe(url)) and reason in told(describe([{"url": url}]))


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"url": "https://e.com/d.zip", "sha": "0"}, "did you mean sha256?"),
        ({"url": "https://e.com/d.zip", "sha256": "0"}, "sha256 has 64 digits"),
        ({"url": "https://e.com/d.zip", "bytes": "1 GB"}, "bytes is the exact size"),
        ({"url": "https://e.com/d.zip", "to": "../up"}, "to is a folder inside path"),
        ({"bytes": 5}, "url is missing"),
    ],
)
def test_what_is_wrong_in_a_download_is_named(describe, entry, reason):
    said = told(describe([entry]), download=False)
    assert reason in said and "mine.yaml: download:" in said


@pytest.mark.parametrize("file", sorted(datasets_dir().glob("*.yaml")), ids=lambda file: file.stem)
def test_what_is_shipped_says_where_it_comes_from(file, user_cache):
    if file.stem == "shapes":
        return
    description = load_description(file.stem)
    text = file.read_text("utf-8")
    assert description.download and all(source.url.startswith("https://") for source in description.download.archives)
    assert not any(map(untrusted, (source.url for source in description.download.archives)))
    assert "Pictures: from Flickr" in text
    for source in description.download.archives:
        assert (source.sha256 and source.bytes) or "Not verified" in text


def test_other_hosts_fetch_shipped_data_for_themselves(monkeypatch):
    asked = []
    monkeypatch.setattr("visiontrain.data.description.load_description", lambda *words: asked.append(words))
    draw_here("coco128", download=False)
    draw_here("/data/on/rank/0/only.yaml", download=True)
    assert asked == []
    draw_here("coco128.yaml", download=True)
    assert asked == [("coco128.yaml", True)]


def test_notes_of_a_download_hold_no_more_than_its_version(server, describe, user_cache):
    server.files["d.zip"], server.cuts = zipped(members()), [1000, *[0] * fetching.FAILURES]
    told(describe(server.url("d.zip")))
    (note,) = (user_cache / "downloads").glob("*.json")
    assert json.loads(note.read_text()) == {"version": '"1"'}
