"""The user's own images, to predict on: files, folders and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..errors import FreeTicketsError
from .decode import fit, open_image, pixels
from .layout import channels_first, image_shape
from .npz import DAMAGE, check_finite, read_arrays, read_headers
from .tree import image_files

_ARRAYS = (".npy", ".npz")
_NPZ_KEYS = ("x", "x_test", "images")


def list_images(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that the paths stand for: folders are replaced by the images in them.

    Raises:
        FreeTicketsError: A path does not exist, or a folder holds no images.
    """
    files: list[Path] = []
    for path in map(Path, [paths] if isinstance(paths, str | Path) else paths):
        if path.is_dir():
            folders = sorted(folder for folder in (path, *path.rglob("*")) if folder.is_dir())
            found = [file for folder in folders for file in image_files(folder)]
            if not found:
                raise FreeTicketsError(f"{path} holds no images")
            files += found
        elif path.is_file():
            files.append(path)
        else:
            raise FreeTicketsError(f"{path}: there is no such file or folder")
    return files


def read_images(
    paths: str | Path | Iterable[str | Path],
    shape: tuple[int, int, int],
    resize: bool = False,
) -> torch.Tensor:
    """Read images as one uint8 tensor (N, C, H, W), in the order of `list_images`.

    Args:
        paths: Image files, folders of them, .npy or .npz arrays; one, or many.
        shape: Channels, height and width that the network takes. Colours are converted.
        resize: Resize and crop images of another size, instead of refusing them.

    Raises:
        FreeTicketsError: A file is damaged, or its images have another size.
    """
    parts = [
        _read_array(path, shape) if path.suffix in _ARRAYS else _read_file(path, shape, resize)
        for path in list_images(paths)
    ]
    if not parts:
        raise FreeTicketsError("no images were given")
    return torch.from_numpy(np.concatenate(parts))


def read_inputs(
    paths: Iterable[str | Path], shape: tuple[int, ...], resize: bool = False
) -> tuple[list[str], torch.Tensor]:
    """Read what is to be predicted: images as `read_images` does, or float arrays as they are.

    Returns:
        A name for each sample (a row of an array is "file.npy[3]"), and the samples.
    """
    names: list[str] = []
    parts: list[torch.Tensor] = []
    for path in list_images(paths):
        rows = _read_features(path, shape)
        if rows is None:
            if len(shape) != 3:
                raise FreeTicketsError(f"{path}: the network takes arrays of shape {shape}")
            rows = read_images(path, (shape[0], shape[1], shape[2]), resize)
        is_array = path.suffix in _ARRAYS
        names += [f"{path}[{i}]" for i in range(len(rows))] if is_array else [str(path)]
        parts.append(rows)
    if len({part.dtype for part in parts}) > 1:
        raise FreeTicketsError("images and float arrays can't be predicted in one go")
    return names, torch.cat(parts)


def _read_features(path: Path, shape: tuple[int, ...]) -> torch.Tensor | None:
    """The samples of a float array; None if it is a file of images."""
    if path.suffix not in _ARRAYS:
        return None
    array = open_array(path)
    if not np.issubdtype(array.dtype, np.floating):
        return None
    if shape[1:] == (1, 1) and array.ndim == 2:  # features of an .npz data set
        array = array[:, :, None, None]
    if array.shape[1:] != shape:
        raise FreeTicketsError(f"{path} holds samples of {array.shape[1:]}, not {shape}")
    check_finite(array, str(path))
    return torch.from_numpy(np.array(array, dtype=np.float32))


def _read_file(path: Path, shape: tuple[int, int, int], resize: bool) -> npt.NDArray[np.uint8]:
    channels, height, width = shape
    image = open_image(path, channels)
    if (image.height, image.width) != (height, width):
        if not resize:
            raise FreeTicketsError(
                f"{path} is {image.width} x {image.height} pixels, the network takes "
                f"{width} x {height}: resize it, or allow it with --resize"
            )
        image = fit(image, height, width)
    return pixels(image)[None]


def _read_array(path: Path, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    images = open_array(path)
    if images.dtype != np.uint8:
        raise FreeTicketsError(f"{path} holds {images.dtype}: images are uint8, 0 to 255")
    found = image_shape(images.shape)
    if found != shape:
        raise FreeTicketsError(f"{path} holds images of (C, H, W) = {found}, not {shape}")
    return channels_first(images)


def open_array(path: Path) -> npt.NDArray[Any]:
    """Return the array of an .npy, mapped, or the array of images of an .npz; see `_NPZ_KEYS`."""
    if path.suffix == ".npz":
        return _read_npz(path)
    try:  # mapped, so that a header is checked before memory is taken
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except DAMAGE as error:
        raise FreeTicketsError(f"{path} is no readable .npy: {error}") from error
    return array


def _read_npz(path: Path) -> npt.NDArray[Any]:
    keys: Sequence[str] = list(read_headers(path))
    if len(keys) > 1:
        keys = [key for key in _NPZ_KEYS if key in keys]
    if not keys:
        raise FreeTicketsError(f"{path}: name the array of images 'x'")
    return read_arrays(path, keys[0])[0]
