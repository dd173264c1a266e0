"""Random crop and flip of a whole batch at once; no Python for each image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Augmentation:
    """How images in memory are moved and mirrored.

    Attributes:
        border: How NumPy fills what an image leaves free.
        part: The images move by up to this part of a side: 8 for an eighth.
        flip: "random", "never", or "alternate": in every second epoch an image is mirrored if it
            was not in the one before, so that two epochs show it both ways.
    """

    border: Literal["constant", "reflect"]
    part: int
    flip: Literal["random", "alternate", "never"]

    def padding(self, height: int, width: int) -> int:
        """Return how many pixels an image may move by; at least one, if it has two.

        Example:
            >>> [AUGMENTATIONS["pad-crop-flip"].padding(side, side) for side in (32, 28, 16)]
            [4, 4, 2]
            >>> [AUGMENTATIONS["translate"].padding(side, side) for side in (32, 28, 1)]
            [2, 2, 0]
        """
        side = min(height, width)
        return min(side - 1, max(1, round(side / self.part)))


AUGMENTATIONS = {
    "pad-crop-flip": Augmentation("constant", 8, "random"),
    "reflect-crop-flip": Augmentation("reflect", 8, "random"),
    "translate": Augmentation("reflect", 16, "never"),
    "translate-alternate": Augmentation("reflect", 16, "alternate"),
}


@dataclass(frozen=True)
class CropFlip:
    """Where each image of a batch is cropped, and whether it is mirrored.

    Attributes:
        pad: How many pixels the images are padded by on each side.
        top: int (N,), row of the crop in the padded image, 0 to 2 * pad.
        left: int (N,), its column.
        mirrored: bool (N,).
    """

    pad: int
    top: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    mirrored: npt.NDArray[np.bool_]

    @classmethod
    def draw(cls, rng: np.random.Generator, count: int, pad: int) -> CropFlip:
        """Draw for `count` images; each of the (2 pad + 1)² offsets and both sides as likely."""
        top, left = rng.integers(0, 2 * pad + 1, size=(2, count))
        return cls(pad, top, left, rng.integers(0, 2, size=count, dtype=np.uint8).astype(bool))

    def part(self, start: int, stop: int) -> CropFlip:
        """Return the draws of the images from start to stop."""
        which = slice(start, stop)
        return CropFlip(self.pad, self.top[which], self.left[which], self.mirrored[which])


def crop_flip(
    images: npt.NDArray[Any], draws: CropFlip, border: Literal["constant", "reflect"]
) -> npt.NDArray[Any]:
    """Pad images (N, C, H, W), crop them back to H x W, and mirror some.

    Example:
        >>> image = np.arange(1, 10).reshape(1, 1, 3, 3)
        >>> up_and_left = CropFlip(1, np.array([0]), np.array([0]), np.array([False]))
        >>> crop_flip(image, up_and_left, "constant")[0, 0].tolist()
        [[0, 0, 0], [0, 1, 2], [0, 4, 5]]
    """
    height, width = images.shape[2:]
    sides = ((0, 0), (0, 0), (draws.pad, draws.pad), (draws.pad, draws.pad))
    padded = np.pad(images, sides, mode=border)
    # All crops of all images as a view; indexing copies only the drawn ones.
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
    chosen: npt.NDArray[Any] = crops[np.arange(len(images)), :, draws.top, draws.left]
    chosen[draws.mirrored] = chosen[draws.mirrored, :, :, ::-1]
    return chosen
