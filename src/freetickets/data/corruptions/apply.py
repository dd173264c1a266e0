"""One function for all corruptions, and what they share: levels, and a stream for each image."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import FreeTicketsError, MissingExtraError
from ...seeds import derive
from . import check_corruption

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[Any]
# Images (N, H, W, 3), a level, streams -> the same as bytes, or as numbers, cut to 0 .. 1.
Change = TypeVar("Change", bound=Callable[..., Floats])

FUNCTIONS: dict[str, Callable[..., Floats]] = {}
LEVELS: dict[str, tuple[Any, ...]] = {}  # what the function is given at each severity
_BLOCK = 100  # images at once: enough to be quick, and little memory
_GREEN = 1


def corruption(*levels: Any) -> Callable[[Change], Change]:
    """Register a function as the corruption of its name, with its levels of severity 1 to 5."""

    def register(function: Change) -> Change:
        name = function.__name__
        FUNCTIONS[name], LEVELS[name] = function, levels
        return function

    return register


@dataclass(frozen=True)
class Streams:
    """Random streams of some images in a row, so that a result does not depend on the batch."""

    key: int  # what the streams of all images have in common
    first: int  # the number of the first image, counted over the whole data set
    count: int

    @cached_property
    def _generators(self) -> list[np.random.Generator]:
        # Made when first needed: half of the corruptions draw nothing.
        images = range(self.first, self.first + self.count)
        return [np.random.default_rng([self.key, image]) for image in images]

    def draw(self, draw: Callable[..., npt.ArrayLike], *images: Floats) -> Floats:
        """Draw one array for each image, of which it may depend, and stack them; then go on."""
        each = zip(self._generators, *images, strict=True)
        return np.stack([np.asarray(draw(*given)) for given in each])


def corrupt(
    images: Bytes, name: str, severity: int, seed: int = 0, frost: str | Path | None = None,
    first: int = 0,
) -> Bytes:  # fmt: skip
    """Return corrupted images, of the same shape.

    What becomes of an image depends on the seed, the corruption, the severity and the number of the
    image, but not on the images beside it: any batch gives the same bytes.

    Images are uint8 (N, H, W, 3); or grey (N, H, W) or (N, H, W, 1), which are corrupted as colour
    images, of which the green channel is then taken: noise keeps its strength, and green is nearest
    to what the eye calls bright. `name` is one of `CORRUPTIONS`, the severity 1 to 5, `frost` the
    folder of the frost pictures, which are made without it (see `find_frost`), `first` the number
    of the first image, if these are a part of a data set.

    Example:
        >>> grey = np.full((2, 8, 8), 100, np.uint8)
        >>> int(corrupt(grey, "brightness", 3).mean())  # 0.15 of 255 more
        138
    """
    check_corruption(name, severity)
    images, shape = np.asarray(images), np.shape(images)
    fits = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3))
    if images.dtype != np.uint8 or not fits or 0 in shape[1:]:
        raise FreeTicketsError(
            f"{images.dtype} of shape {shape}: corruptions take uint8 (N, H, W, 3) or (N, H, W)"
        )
    planes = images[..., None] if len(shape) == 3 else images
    colour = np.ascontiguousarray(np.broadcast_to(planes, (*shape[:3], 3)))
    try:
        from . import blur, pixels, weather  # noqa: F401  what is in them registers itself
        from .frost import load_pictures
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
