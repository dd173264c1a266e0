"""Files from the internet: checked, and on disk either whole or not at all."""

import errno
import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import FreeTicketsError
from ..progress import WorkProgress
from ..reading import read
from ..storage import whole_file
from .spec import known_facts

GET_AGAIN = "delete it and get it again"  # what to do about a damaged file
_CHUNK = 1 << 18
_TIMEOUT = 30.0  # seconds without a byte
_LARGEST = 1 << 30  # bytes; the largest file that is fetched has 182 MB
_NETWORK = (
    *(urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError),
    *(ssl.SSLError, ValueError),  # an address that is none
)


@dataclass(frozen=True)
class Publisher:
    """Where files are offered, and in which folders below the data root they are looked for."""

    address: str
    folders: tuple[str, ...]  # the first is for downloads
    md5: dict[str, str]  # of each file

    def find(self, root: Path, name: str, download: bool, *others: str) -> Path:
        """Return the file, or one of another name that will do; else download it."""
        places = [root / folder / each for folder in self.folders for each in (name, *others)]
        for path in places:
            if path.exists():
                return path
        if not download:
            raise FreeTicketsError(
                f"{places[0]} is not there: give its --data-dir, or allow the download"
            )
        return fetch(f"{self.address}/{name}", places[0], self.md5[name])


PUBLISHERS = {name: read(Publisher, told) for name, told in known_facts("files").items()}


def fetch(url: str, target: Path, md5: str) -> Path:
    """Download a file, check it, and only then give it its name; a failure leaves nothing behind.

    If `$FREETICKETS_MIRROR` is set, the file is looked for in that folder of the internet instead
    of its publisher's; the checksum holds all the same.
    """
    if mirror := os.environ.get("FREETICKETS_MIRROR"):
        url = f"{mirror.rstrip('/')}/{url.rsplit('/', 1)[-1]}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(target) as file:
            _transfer(url, file)
            check_md5(file, md5, target.name)
    except urllib.error.HTTPError as error:
        error.close()
        raise FreeTicketsError(f"cannot download {url}: {error.code} {error.reason}") from error
    except _NETWORK as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise FreeTicketsError(
            f"cannot download {url} ({reason}): check the network, or put the file at {target}"
        ) from error
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise FreeTicketsError(f"cannot keep {target}: {reason}") from error
    return target


def check_md5(file: IO[bytes], expected: str, what: str) -> None:
    """Refuses a file that is another than the expected one."""
    digest = hashlib.md5(usedforsecurity=False)
    file.seek(0)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    if (found := digest.hexdigest()) != expected:
        raise FreeTicketsError(
            f"{what} has the wrong checksum (md5 {found}, not {expected}): get it again"
        )


def _transfer(url: str, file: IO[bytes]) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
        total = int(response.headers.get("Content-Length") or 0)  # 0 if the server does not say
        name, received = url.rsplit("/", 1)[-1], 0
        progress = WorkProgress("bytes")
        progress.line(f"downloading {url}" + (f" ({total / 1e6:.1f} MB)" if total else ""))
        with progress.over(total):
            progress.begin(name)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                received += len(chunk)
                if received > _LARGEST:
                    raise urllib.error.URLError("it is far larger than any file that is offered")
                if total:
                    progress.advance(len(chunk))
    if received < total:  # a connection that breaks looks like an end
        raise urllib.error.URLError(f"the transfer broke off after {received:,} of {total:,} bytes")
    progress.end(name)
