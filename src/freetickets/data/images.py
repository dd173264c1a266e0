"""The user's own images, to predict on: files, folders and arrays."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from . import npz
from .decode import fit, match_shape, open_image, pixels
from .samples import Split
from .spec import image_files

ARRAYS = (".npy", ".npz")
_NPZ_KEYS = ("x", "x_test", "images")
_Array = npt.NDArray[Any]


def list_images(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that the paths stand for: folders are replaced by the images in them."""
    files: list[Path] = []
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        if path.is_dir():
            folders = sorted(folder for folder in (path, *path.rglob("*")) if folder.is_dir())
            if not (found := [file for folder in folders for file in image_files(folder)]):
                raise FreeTicketsError(f"{path} holds no images")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise FreeTicketsError(f"{path}: there is no such file or folder")
    return files


def read_images(
    paths: str | Path | Iterable[str | Path], shape: tuple[int, ...], resize: bool = False
) -> torch.Tensor:
    """Read all that `read_inputs` reads from files and folders, as one tensor."""
    batches = read_inputs(list_images(paths), shape, resize)
    return torch.cat([split.inputs for _, split in batches])


def count_inputs(files: Sequence[Path]) -> int:
    """Return how many samples files hold; of arrays only the headers are read."""
    return sum(
        npz.read_headers(file)[_key(file)].shape[0] if file.suffix in ARRAYS else 1
        for file in files
    )


def read_inputs(
    files: Sequence[Path], shape: tuple[int, ...], resize: bool = False, at_once: int = 256
) -> Iterator[tuple[list[str], Split]]:
    """Read what is to be predicted, batch by batch: memory holds no more than that.

    Files are images, whose colours are converted, or .npy or .npz arrays of uint8 images or of
    numbers. Images of another size are resized and cropped if that is allowed. A batch has a name
    for each sample (a row of an array is "file.npy[3]").
    """
    samples = _read_samples(files, shape, resize, at_once)
    found = False
    while batch := list(itertools.islice(samples, at_once)):
        if len({sample.dtype for _, sample in batch}) > 1:
            raise FreeTicketsError("images and float arrays can't be predicted in one go")
        found = True
        inputs = torch.from_numpy(np.stack([sample for _, sample in batch]))
        yield [name for name, _ in batch], Split(inputs, torch.zeros(len(batch), dtype=torch.int64))
    if not found:
        raise FreeTicketsError(f"no images were given: {', '.join(map(str, files)) or 'no file'}")


def _read_samples(
    files: Sequence[Path], shape: tuple[int, ...], resize: bool, at_once: int
) -> Iterator[tuple[str, _Array]]:
    for path in files:
        if path.suffix not in ARRAYS:
            yield str(path), _read_image(path, shape, resize)
            continue
        number = itertools.count()
        for rows in npz.read_rows(path, _key(path), at_once):
            if rows.dtype == np.uint8:
                block = match_shape(npz.channels_first(rows), shape, str(path), resize)
            elif rows.dtype.kind in "fiu":
                # Features of an .npz data set have the shape that its spec says.
                block = rows[:, :, None, None] if shape[1:] == (1, 1) and rows.ndim == 2 else rows
                if block.shape[1:] != shape:
                    raise FreeTicketsError(f"{path} holds samples of {rows.shape[1:]}, not {shape}")
                npz.check_finite(rows, str(path))
                block = block.astype(np.float32 if rows.dtype.kind == "f" else np.int64)
            else:
                raise FreeTicketsError(f"{path} holds {rows.dtype}: give uint8 images or numbers")
            yield from ((f"{path}[{next(number)}]", sample) for sample in block)


def _read_image(path: Path, shape: tuple[int, ...], resize: bool) -> _Array:
    if len(shape) != 3:
        raise FreeTicketsError(f"{path}: the network takes arrays of shape {shape}")
    channels, height, width = shape
    image = open_image(path, channels)
    if (image.height, image.width) != (height, width):
        if not resize:
            raise FreeTicketsError(
                f"{path} is {image.width} x {image.height} pixels, the network takes "
                f"{width} x {height}: resize it, or allow it with --resize"
            )
        image = fit(image, height, width)
    return pixels(image)


def _key(path: Path) -> str:
    """The name of the array of images in a file: the only one, or see `_NPZ_KEYS`."""
    keys = list(npz.read_headers(path))
    for key in keys if len(keys) == 1 else _NPZ_KEYS:
        if key in keys:
            return key
    raise FreeTicketsError(f"{path}: name the array of images 'x'")
