"""Files from the internet: checked, and on disk either whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import FreeTicketsError
from .progress import transfer_progress
from .root import first_existing

_CHUNK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte
_LARGEST = 1 << 30  # bytes; the largest file that is fetched has 182 MB
_NETWORK = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
    ValueError,  # an address that is none
)


@dataclass(frozen=True)
class Remote:
    """A file that its publisher offers, with the MD5 sum of its contents."""

    url: str
    md5: str

    @property
    def filename(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[-1]


def find_or_fetch(
    root: Path, places: Sequence[str], target: str, remote: Remote, download: bool
) -> Path:
    """Return the first of the places below the root that exists; else download to the target.

    Raises:
        FreeTicketsError: It is not there, and may not or cannot be downloaded.
    """
    found = first_existing(root / place for place in places)
    if found is not None:
        return found
    if not download:
        raise FreeTicketsError(
            f"{root / places[0]} is not there: give its folder as --data-dir, or allow the download"
        )
    return fetch(remote.url, root / target, md5=remote.md5)


def fetch(url: str, target: Path, *, md5: str | None = None, sha256: str | None = None) -> Path:
    """Download a file, check it, and only then give it its name.

    If `$FREETICKETS_MIRROR` is set, the file is looked for in that folder of the internet instead
    of its publisher's; the checksums hold all the same.

    Args:
        url: Where the file is.
        target: Where it shall be; its folder is made.
        md5: Expected MD5 sum.
        sha256: Expected SHA-256 sum.

    Returns:
        The target.

    Raises:
        FreeTicketsError: No network, no such file, a broken transfer, a wrong checksum, a full
            disk. Nothing is left behind.
    """
    mirror = os.environ.get("FREETICKETS_MIRROR")
    if mirror:
        url = f"{mirror.rstrip('/')}/{url.rsplit('/', 1)[-1]}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(target) as file:
            digests = _Digests({"md5": md5, "sha256": sha256})
            _transfer(url, file, digests.update)
            digests.check(target.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise FreeTicketsError(
            f"cannot download {url}: the server says {error.code} {error.reason}"
        ) from error
    except _NETWORK as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise FreeTicketsError(
            f"cannot download {url} ({reason}): check the network, or put the file at {target}"
        ) from error
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise FreeTicketsError(f"cannot keep {target}: {reason}") from error
    return target


@contextmanager
def write_whole(target: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that becomes the target if all goes well, and goes away if not."""
    # Beside the target, so that the renaming is atomic; of its own name, so that two processes
    # that download at once do not write into one file.
    descriptor, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name}.", suffix=".part"
    )
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:
            yield file
        temporary.chmod(0o644)  # made for its owner only, but data is for everyone
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def check_md5(path: Path, expected: str) -> None:
    """Check a file on disk.

    Raises:
        FreeTicketsError: It is another file than the expected one.
    """
    digests = _Digests({"md5": expected})
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digests.update(chunk)
    digests.check(str(path))


class _Digests:
    """Checksums that are computed while the data flows by."""

    def __init__(self, expected: dict[str, str | None]) -> None:
        self._expected = {name: value for name, value in expected.items() if value is not None}
        self._running = {name: hashlib.new(name, usedforsecurity=False) for name in self._expected}

    def update(self, chunk: bytes) -> None:
        for digest in self._running.values():
            digest.update(chunk)

    def check(self, what: str) -> None:
        for name, digest in self._running.items():
            if digest.hexdigest() != self._expected[name]:
                raise FreeTicketsError(
                    f"{what} has the wrong checksum ({name} {digest.hexdigest()}, expected "
                    f"{self._expected[name]}): it is damaged or another file, get it again"
                )


def _transfer(url: str, file: IO[bytes], on_chunk: Callable[[bytes], None]) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
        total = int(response.headers.get("Content-Length") or 0)
        received = 0
        with transfer_progress(url, total) as advance:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                on_chunk(chunk)
                received += len(chunk)
                if received > _LARGEST:
                    raise urllib.error.URLError("it is far larger than any file that is offered")
                advance(len(chunk))
    if received < total:  # a connection that breaks looks like an end
        raise urllib.error.URLError(f"the transfer broke off after {received:,} of {total:,} bytes")
