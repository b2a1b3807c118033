"""One file over HTTP, whole or not at all, and never a wait without an end."""

import hashlib
import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from epochbench.datasets.cache import replacing
from epochbench.datasets.options import DataError

_LEAST_BYTES = 4096  # of a stretch of `timeout_seconds`; less is a stall
_MOST_BYTES = 1 << 30  # a server that never ends must not fill the disk


class _WrongContent(DataError):
    """What arrived is not what was asked for: worth a second try."""


def fetch(
    url: str,
    path: Path,
    *,
    md5: str | None = None,
    sha256_prefix: str | None = None,
    timeout_seconds: float = 5,
) -> Path:
    """Downloads ``url`` to ``path`` and returns ``path``; a file there with the right hash is kept as it is.

    No wait, for a name, a connection or the next bytes, is longer than ``timeout_seconds``. Without a hash a
    file that is already there proves nothing and is fetched again.

    Raises DataError: no answer, a stall, an HTTP error, or a wrong hash or length twice.
    """
    if not url.startswith(("https://", "http://")):
        raise DataError(f"{url}: only http and https addresses can be downloaded")
    if path.is_file() and (md5 or sha256_prefix) and _hash_fault(path, md5, sha256_prefix) is None:
        return path
    try:
        _fetch_once(url, path, md5, sha256_prefix, timeout_seconds)
    except _WrongContent:
        _fetch_once(url, path, md5, sha256_prefix, timeout_seconds)
    return path


def _fetch_once(url: str, path: Path, md5: str | None, sha256_prefix: str | None, timeout_seconds: float) -> None:
    with replacing(path) as temporary:
        path.unlink(missing_ok=True)  # whatever is there was found wanting
        with temporary.open("wb") as file:
            for piece in _pieces(url, timeout_seconds):
                file.write(piece)
        fault = _hash_fault(temporary, md5, sha256_prefix)
        if fault is not None:
            raise _WrongContent(f"{path.name} from {url}: {fault}; it was removed, try again later")


def _hash_fault(path: Path, md5: str | None, sha256_prefix: str | None) -> str | None:
    content = path.read_bytes()
    if md5 is not None:
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != md5.lower():
            return f"{len(content):,} bytes with md5 {found}, expected {md5}"
    if sha256_prefix is not None:
        found = hashlib.sha256(content).hexdigest()
        if not found.startswith(sha256_prefix.lower()):
            return f"{len(content):,} bytes with sha256 {found}, expected {sha256_prefix}…"
    return None


def _pieces(url: str, timeout_seconds: float) -> Iterator[bytes]:
    """The body as it arrives.

    The connection lives in a thread, because a socket's own timeout covers neither the look-up of the name
    nor a server that sends one byte at a time.
    """
    arrived: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_pump, args=(url, timeout_seconds, arrived, stop), daemon=True).start()
    stretch_start, stretch_bytes, all_bytes = time.monotonic(), 0, 0
    try:
        while True:
            try:
                piece = arrived.get(timeout=timeout_seconds)
            except queue.Empty:
                raise DataError(_silent(url, timeout_seconds)) from None
            if isinstance(piece, DataError):
                raise piece
            if isinstance(piece, Exception):
                raise _plain(url, piece, timeout_seconds) from piece
            if piece is None:
                return
            stretch_bytes += len(piece)
            all_bytes += len(piece)
            if all_bytes > _MOST_BYTES:
                raise DataError(f"{url}: sends more than {_MOST_BYTES:,} bytes; use another address")
            now = time.monotonic()
            if now - stretch_start > timeout_seconds:
                if stretch_bytes < _LEAST_BYTES:
                    raise DataError(_silent(url, timeout_seconds))
                stretch_start, stretch_bytes = now, 0
            yield piece
    finally:
        stop.set()


def _pump(url: str, timeout_seconds: float, arrived: queue.SimpleQueue, stop: threading.Event) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "epochbench"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
            promised = response.headers.get("Content-Length")
            received = 0
            while not stop.is_set() and (piece := response.read1(1 << 16)):
                received += len(piece)
                arrived.put(piece)
        if promised is not None and promised.isdecimal() and received != int(promised):
            raise _WrongContent(f"{url}: ended after {received:,} of {promised} bytes; try again later")
        arrived.put(None)
    except http.client.IncompleteRead as error:
        arrived.put(_WrongContent(f"{url}: ended too early ({error}); try again later"))
    except (OSError, ValueError, http.client.HTTPException, _WrongContent) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        arrived.put(error)


def _plain(url: str, error: Exception, timeout_seconds: float) -> DataError:
    cause = getattr(error, "reason", error)
    if isinstance(error, urllib.error.HTTPError):
        return DataError(f"{url}: the server answered {error.code} {error.reason}; try again later")
    if isinstance(error, TimeoutError) or isinstance(cause, TimeoutError):
        return DataError(_silent(url, timeout_seconds))
    return DataError(f"{url}: cannot be reached ({cause}); check the connection")


def _silent(url: str, timeout_seconds: float) -> str:
    return f"{url}: no answer within {timeout_seconds:g} s; check the connection, or use a folder of your own"
