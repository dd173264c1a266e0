"""One function for all corruptions."""

from functools import partial
from pathlib import Path

import numpy as np

from ...errors import FreeTicketsError, MissingExtraError
from ...seeds import derive
from . import check_corruption
from .frost import load_pictures
from .streams import FUNCTIONS, LEVELS, Bytes, Floats, Streams

_BLOCK = 100  # images at once: enough to be quick, and little memory
_GREEN = 1


def corrupt(
    images: Bytes,
    name: str,
    severity: int,
    seed: int = 0,
    frost: str | Path | None = None,
    first: int = 0,
) -> Bytes:
    """Return corrupted images, of the same shape.

    What becomes of an image depends on the seed, the corruption, the severity and the number of the
    image, but not on the images beside it: any batch gives the same bytes.

    Args:
        images: uint8 (N, H, W, 3); or grey (N, H, W) or (N, H, W, 1), which is corrupted as a
            colour image, of which the green channel is then taken: noise keeps its strength, and
            green is nearest to what the eye calls bright.
        name: One of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: Another seed draws other noise.
        frost: The folder of the frost pictures; without it, they are made (see `find_frost`).
        first: The number of the first image, if these are a part of a data set.

    Raises:
        FreeTicketsError: The images, name or severity can't be, or SciPy is not installed.

    Example:
        >>> grey = np.full((2, 8, 8), 100, np.uint8)
        >>> int(corrupt(grey, "brightness", 3).mean())  # 0.15 of 255 more
        138
    """
    check_corruption(name, severity)
    colour = _as_colour(np.asarray(images))
    try:
        from . import blur, pixels, weather  # noqa: F401  what is in them registers itself
    except ImportError as error:
        raise MissingExtraError("corrupting images", "corruptions") from error
    change, level = FUNCTIONS[name], LEVELS[name][severity - 1]
    if name == "frost":
        change = partial(change, pictures=load_pictures(frost))
    key = derive(seed, name, severity)
    result = np.empty_like(colour)
    for start in range(0, len(colour), _BLOCK):
        block = colour[start : start + _BLOCK]
        changed = change(block, level, Streams(key, first + start, len(block)))
        if changed.dtype != np.uint8:
            changed = (255 * np.clip(changed, 0, 1)).astype(np.uint8)  # cuts off, does not round
        result[start : start + _BLOCK] = changed
    if images.ndim == 3:
        return result[..., _GREEN]
    return result if images.shape[3] == 3 else result[..., _GREEN : _GREEN + 1]


def _as_colour(images: Floats) -> Bytes:
    shape = images.shape
    fits = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    if images.dtype != np.uint8 or not fits or 0 in shape[1:]:
        raise FreeTicketsError(
            f"{images.dtype} of shape {shape}: corruptions take uint8 (N, H, W, 3) or (N, H, W)"
        )
    if len(shape) == 3:
        images = images[..., None]
    return np.ascontiguousarray(np.broadcast_to(images, (*images.shape[:3], 3)))
