"""Pixelate and JPEG, by Pillow, as the originals are."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from .streams import Streams

_SCALES = (0.95, 0.9, 0.85, 0.75, 0.65)
_QUALITIES = (80, 65, 58, 50, 40)


def pixelate(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Make the image smaller and as large again, by boxes."""
    height, width = images.shape[1:3]
    scale = _SCALES[severity - 1]
    small = max(1, int(width * scale)), max(1, int(height * scale))
    box = Image.Resampling.BOX
    return _each(images, lambda image: image.resize(small, box).resize((width, height), box))


def jpeg_compression(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Save as JPEG and read again."""

    def save_and_read(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=_QUALITIES[severity - 1])
        return Image.open(file)

    return _each(images, save_and_read)


def _each(
    images: npt.NDArray[np.uint8], change: Callable[[Image.Image], Image.Image]
) -> npt.NDArray[Any]:
    return np.stack([np.asarray(change(Image.fromarray(image))) for image in images])
