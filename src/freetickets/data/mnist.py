"""MNIST's test digits: strange images for networks that know other grey pictures."""

from __future__ import annotations

from pathlib import Path

from .download import Remote, find_or_fetch
from .fashion import read_idx
from .split import Split, arrays

_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist"
REMOTES = {
    name: Remote(f"{_ADDRESS}/{name}.gz", md5)
    for name, md5 in (
        ("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3"),
        ("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c"),
    )
}
# torchvision's first. Not the root itself: Fashion-MNIST's files have the same names.
_FOLDERS = ("MNIST/raw", "mnist")


def load_mnist(root: Path, download: bool) -> Split:
    """Read the 10,000 test digits; download the two files if they are missing.

    Raises:
        FreeTicketsError: The files are missing or not those of MNIST.
    """
    images, labels = (_obtain(name, root, download) for name in REMOTES)
    return arrays(read_idx(images, (10_000, 28, 28)), read_idx(labels, (10_000,)))


def _obtain(name: str, root: Path, download: bool) -> Path:
    places = [f"{folder}/{name}{suffix}" for folder in _FOLDERS for suffix in ("", ".gz")]
    return find_or_fetch(root, places, f"{_FOLDERS[0]}/{name}.gz", REMOTES[name], download)
