"""One random stream for each image, so that a result does not depend on the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[Any]


@dataclass(frozen=True)
class Streams:
    """The random streams of some images in a row."""

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
