"""Street View House Numbers, the cropped digits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import FreeTicketsError
from .download import Remote, find_or_fetch
from .mat import read_mat
from .split import Split, arrays

REMOTES = {
    "train": Remote(
        "http://ufldl.stanford.edu/housenumbers/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"
    ),
    "test": Remote(
        "http://ufldl.stanford.edu/housenumbers/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"
    ),
}


def load_svhn(split: Literal["train", "test"], root: Path, download: bool) -> Split:
    """Read a split; download its file if it is missing.

    A file with fewer images than the published one is accepted: the set mostly serves as a test of
    what a network does with strange images, and extracts of it are common.

    Raises:
        FreeTicketsError: The file is missing or not one of SVHN.
    """
    remote = REMOTES[split]
    places = [f"{folder}{remote.filename}" for folder in ("", "svhn/", "SVHN/")]
    path = find_or_fetch(root, places, remote.filename, remote, download)
    content = read_mat(path)
    images, labels = content.get("X"), content.get("y")
    if images is None or images.dtype != np.uint8 or images.shape[:-1] != (32, 32, 3):
        raise FreeTicketsError(f"{path} does not hold images of 32 x 32 x 3 bytes")
    if labels is None or labels.size != images.shape[-1] or not np.isin(labels, range(1, 11)).all():
        raise FreeTicketsError(f"{path} does not hold a label from 1 to 10 for each image")
    digits = labels.reshape(-1).astype(np.int64) % 10  # the publisher's label of the digit 0 is 10
    return arrays(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits)
