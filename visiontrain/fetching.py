"""Fetch a file into the user's cache, when asked to: resumed after a cut, checked; only addresses that can be trusted are followed."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import shutil
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from visiontrain.errors import DataError
from visiontrain.inline import bar
from visiontrain.paths import cache_dir
from visiontrain.source import LOOPBACK, Source, untrusted

MOST_BYTES = 64 * 2**30  # of an archive whose description does not tell its size
FAILURES = 4  # in a row without a byte more
TIMEOUT = 30.0  # seconds without an answer or a byte
PAUSE = 1.0  # seconds before the second try, twice as long before each further one
_CHUNK = 1 << 20
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})  # what a server may get over


class Cut(Exception):
    """The network failed; what came so far is kept."""


def fetch_file(url: str, most: int) -> Path:
    """Fetch one file that the user named into the user's cache, anew each time, and give its path.

    Args:
        url: http, https or file.
        most: bytes that are taken.

    Raises:
        DataError: not there, no network, no room, or larger than ``most``.
    """
    folder = cache_dir() / "downloads"
    source = Source(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if url.startswith("file:"):
            return fetched(source, folder)
        path = folder / f"{short(url)}-{source.name}"
        with alone(path.with_name(f"{path.name}.lock")):
            part = _Part(source, path, most)
            part.complete()
            part.file.replace(path)
            part.note.unlink(missing_ok=True)
    except Cut as cut:
        raise DataError(str(cut)) from cut
    except OSError as error:
        raise DataError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error
    return path


def fetched(source: Source, folder: Path) -> Path:
    """The file of an address on this disk, its size and checksum as described: fetched, or from an earlier time.

    Raises:
        Cut: the network failed; what came is kept.
        DataError: not there, or not the file that was described, of which nothing is kept.
    """
    if source.url.startswith("file:"):
        path = Path(urllib.request.url2pathname(unquote(urlsplit(source.url).path)))
        if not path.is_file():
            raise DataError(f"{source.url}: there is no file {path}")
        _check(source, path)
        return path
    path = folder / f"{short(source.url)}-{source.name}"
    if not path.is_file():
        part = _Part(source, path)
        print(f"Fetching {source} into {folder}", file=sys.stderr)
        part.complete()
        part.file.rename(path)
        part.note.unlink(missing_ok=True)
    try:
        _check(source, path)
    except DataError:
        path.unlink()
        raise
    return path


def digest_of(path: Path) -> str:
    """SHA-256 of a file, 64 digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(source: Source, path: Path) -> None:
    size = path.stat().st_size
    if source.bytes and size != source.bytes:
        raise DataError(
            f"{source.url}: has {size} bytes and {source.said_by} says {source.bytes}: not the file that was meant"
        )
    if source.sha256:
        digest = digest_of(path)
        if digest != source.sha256:
            raise DataError(
                f"{source.url}: its SHA-256 is {digest} and {source.said_by} says {source.sha256}: not the file that was meant; "
                "nothing of it is used"
            )


_NETWORK = (Cut, urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)


class _Part:
    """A file that is on its way: what came of it, and which version of the server's file that is of."""

    def __init__(self, source: Source, path: Path, most: int | None = None) -> None:
        self.source = source
        self.most, self.described = most or MOST_BYTES, most is None
        self.file = path.with_name(f"{path.name}.part")
        self.note = path.with_name(f"{path.name}.json")

    def complete(self) -> None:
        """Fetch what is missing, again and again while each try brings something."""
        failures = 0
        while True:
            before = self.size
            try:
                if self._go_on():
                    return
                raise Cut("the connection was closed")
            except _NETWORK as error:
                if isinstance(error, urllib.error.HTTPError) and error.code not in _AGAIN:
                    raise DataError(f"{self.source.url}: the server answers {error.code} {error.reason}") from error
                failures = 0 if self.size > before else failures + 1
                if failures == FAILURES:
                    raise Cut(f"{self.source.url}: cannot be fetched: {_reason(error)}") from error
                time.sleep(PAUSE * 2**failures / 2 if failures else 0)

    @property
    def size(self) -> int:
        """Bytes that came."""
        return self.file.stat().st_size if self.file.is_file() else 0

    def remove(self) -> None:
        """Begin anew the next time."""
        self.file.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def _go_on(self) -> bool:
        """One connection; whether all is here."""
        version, start = self._version(), self.size
        if not (version or self.source.sha256):  # nothing would tell that the rest is of another file
            start = 0
        try:
            answer = _OPENER.open(_request(self.source.url, start, version), timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise
            return self._beyond(error, start)
        with answer:
            return self._receive(answer, start)

    def _beyond(self, error: urllib.error.HTTPError, start: int) -> bool:
        """Asked for the bytes behind the last one: all is here, or what is here is of a longer file."""
        total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
        if start and total and int(total[1]) == start:
            return True
        self.remove()
        return False

    def _receive(self, answer: Any, start: int) -> bool:
        if answer.status == 206:
            came = re.match(rf"bytes {start}-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
            if not came:
                self.remove()
                raise Cut("the server sent another part than it was asked for")
            total = int(came[1]) if came[1] != "*" else 0
        else:  # the server knows no parts, or its file has changed: from the start
            start, total = 0, int(answer.headers.get("Content-Length") or 0)
        self._mind(total, start)
        self._note(answer.headers)
        limit = self.source.bytes or total or self.most
        with self.file.open("ab" if start else "wb") as file, _bar(self.source.name, start, total) as shown:
            while chunk := answer.read(_CHUNK):
                start += len(chunk)
                if start > limit:
                    raise DataError(f"{self.source.url}: more than {limit} bytes come, and that is all it should have")
                file.write(chunk)
                shown.update(len(chunk))
        return start == total if total else True

    def _mind(self, total: int, start: int) -> None:
        """Refuse before a byte is written what could not be used."""
        expected = self.source.bytes
        if total and expected and total != expected:
            self.remove()
            raise DataError(
                f"{self.source.url}: the server's file has {total} bytes and {self.source.said_by} says {expected}"
            )
        if total > self.most and not expected:
            raise DataError(
                f"{self.source.url}: {total / 1e9:.0f} GB, more than the {self.most >> 30} GiB that are taken without being "
                f"announced; {self._remedy(total)}"
            )
        space_for(self.file.parent, total - start)

    def _remedy(self, total: int) -> str:
        if self.described:
            return f"write bytes: {total} to its download in the description"
        return "fetch it yourself and give its path"

    def _note(self, headers: Any) -> None:
        tag = headers.get("ETag", "")
        # A weak tag speaks of the meaning, not of the bytes (RFC 9110, 8.8.1).
        version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")
        self.note.write_text(json.dumps({"version": version}), "utf-8")

    def _version(self) -> str:
        try:
            return str(json.loads(self.note.read_text("utf-8"))["version"])
        except (FileNotFoundError, ValueError, KeyError):
            return ""


def _request(url: str, start: int, version: str) -> urllib.request.Request:
    headers = {"User-Agent": "visiontrain", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if version:
            headers["If-Range"] = version
    return urllib.request.Request(url, headers=headers)


class _Redirect(urllib.request.HTTPRedirectHandler):
    """Follows to addresses that a description might name itself."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        from_here = urlsplit(req.full_url).hostname in LOOPBACK
        to_here = urlsplit(newurl).hostname in LOOPBACK
        if untrusted(newurl).endswith("give an https address") or urlsplit(newurl).scheme not in ("http", "https"):
            raise DataError(f"{req.full_url}: leads to {newurl:.200}, which is no https address; it is not followed")
        if to_here and not from_here:
            raise DataError(f"{req.full_url}: leads to {newurl:.200}, on this machine; it is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_Redirect)


def _bar(name: str, start: int, total: int) -> Any:
    return bar(
        desc=name, initial=start, total=total or None, unit="B", unit_scale=True, unit_divisor=1024, disable=None
    )


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason or type(error).__name__)


def short(text: str) -> str:
    """Twelve letters that stand for a text in the name of a file."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process does the same; a lock ends with its process, however that ends."""
    with path.open("a") as file:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def space_for(folder: Path, size: int) -> None:
    """Say so where the disk has too little room.

    Raises:
        DataError: fewer than ``size`` bytes are free where ``folder`` is.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise DataError(
            f"{folder}: {size / 1e9:.2f} GB are needed and {free / 1e9:.2f} GB are free; make room, or set VISIONTRAIN_CACHE to a "
            "folder with more"
        )
