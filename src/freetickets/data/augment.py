"""Random crop and flip of a whole batch at once; no Python for each image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError

PAD = 4
# How NumPy fills the border, by the name of the augmentation.
PAD_MODES: dict[str, Literal["constant", "reflect"]] = {
    "pad-crop-flip": "constant",
    "reflect-crop-flip": "reflect",
}


@dataclass(frozen=True)
class CropFlip:
    """Where each image of a batch is cropped, and whether it is mirrored.

    Attributes:
        top: int (N,), row of the crop in the padded image, 0 to 2 * PAD.
        left: int (N,), its column.
        mirrored: bool (N,).
    """

    top: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    mirrored: npt.NDArray[np.bool_]

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int) -> CropFlip:
        """Draw for `count` images; each of the 81 offsets and both sides equally likely."""
        top, left = rng.integers(0, 2 * PAD + 1, size=(2, count))
        return cls(top, left, rng.integers(0, 2, size=count, dtype=np.uint8).astype(bool))

    def part(self, start: int, stop: int) -> CropFlip:
        """Return the draws of the images from start to stop."""
        which = slice(start, stop)
        return CropFlip(self.top[which], self.left[which], self.mirrored[which])


def crop_flip(images: npt.NDArray[Any], draws: CropFlip, augmentation: str) -> npt.NDArray[Any]:
    """Pad images (N, C, H, W) by 4 pixels, crop them back to H x W, and mirror some.

    Example:
        >>> image = np.arange(1, 10).reshape(1, 1, 3, 3)
        >>> up_and_left = CropFlip(np.array([3]), np.array([3]), np.array([False]))
        >>> crop_flip(image, up_and_left, "pad-crop-flip")[0, 0].tolist()
        [[0, 0, 0], [0, 1, 2], [0, 4, 5]]
    """
    height, width = images.shape[2:]
    if augmentation == "reflect-crop-flip" and min(height, width) <= PAD:
        raise FreeTicketsError(f"reflect-crop-flip needs more than {PAD} pixels a side")
    border = ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD))
    padded = np.pad(images, border, mode=PAD_MODES[augmentation])
    # All crops of all images as a view; indexing copies only the drawn ones.
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    chosen: npt.NDArray[Any] = crops[np.arange(len(images)), :, draws.top, draws.left]
    chosen[draws.mirrored] = chosen[draws.mirrored, :, :, ::-1]
    return chosen
