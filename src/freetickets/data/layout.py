"""Which axis of an array of images is the channels'."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError

_COLOURS = (1, 3)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width of images in an array of the given shape.

    (N, H, W) is grey. Of four axes the last is the channels' only if the second cannot be.

    Example:
        >>> image_shape((100, 28, 28)), image_shape((100, 3, 32, 32)), image_shape((100, 32, 32, 3))
        ((1, 28, 28), (3, 32, 32), (3, 32, 32))
    """
    if len(shape) == 3:
        return (1, shape[1], shape[2])
    if len(shape) != 4:
        raise FreeTicketsError(
            f"uint8 array of shape {shape}: images are (N, H, W), (N, C, H, W) or (N, H, W, C), "
            "other features float32"
        )
    if _is_channels_last(shape):
        return (shape[3], shape[1], shape[2])
    return (shape[1], shape[2], shape[3])


def channels_first(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return images of any accepted layout as (N, C, H, W).

    Example:
        >>> channels_first(np.zeros((100, 32, 32, 3), np.uint8)).shape
        (100, 3, 32, 32)
    """
    wanted = image_shape(images.shape)
    if images.ndim == 4 and _is_channels_last(images.shape):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images.reshape(len(images), *wanted)


def _is_channels_last(shape: tuple[int, ...]) -> bool:
    return shape[3] in _COLOURS and shape[1] not in _COLOURS
