"""What all corruptions share: their names and levels, and one random stream for each image."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[Any]
# Images (N, H, W, 3), a level, streams -> the same as bytes, or as numbers, cut to 0 .. 1.
Change = TypeVar("Change", bound=Callable[..., Floats])

FUNCTIONS: dict[str, Callable[..., Floats]] = {}
LEVELS: dict[str, tuple[Any, ...]] = {}  # what the function is given at each severity


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
