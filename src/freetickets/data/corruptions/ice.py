"""Pictures of frost for those who have none: clouds and needles of ice, in the originals' colours.

Frost is `a * image + b * picture`, so what counts most is each picture's mean and deviation; those
are the originals'. The needles give the look.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

_SEED = 2022
_SIZE = 128
_NEEDLES = 500
_SLOPE = 0.9  # the clouds' amplitude falls with the frequency to this power
# Mean and deviation of red, green and blue of the five published pictures.
_COLOURS = (
    ((78, 149, 165), (24, 15, 14)),
    ((199, 203, 213), (19, 19, 19)),
    ((199, 203, 213), (19, 19, 19)),
    ((141, 156, 169), (28, 28, 28)),
    ((107, 118, 130), (37, 36, 35)),
)


@lru_cache(maxsize=1)
def synthetic_pictures() -> tuple[npt.NDArray[np.uint8], ...]:
    """Return five pictures, always the same."""
    return tuple(_picture(number, *colours) for number, colours in enumerate(_COLOURS))


def _picture(
    number: int, mean: tuple[int, int, int], deviation: tuple[int, int, int]
) -> npt.NDArray[np.uint8]:
    rng = np.random.default_rng([_SEED, number])
    ice = 0.75 * _standard(_clouds(rng)) + 0.66 * _standard(_needles(rng))
    picture = np.array(mean) + np.array(deviation) * _standard(ice)[..., None]
    return picture.clip(0, 255).astype(np.uint8)


def _clouds(rng: np.random.Generator) -> npt.NDArray[Any]:
    frequency = np.hypot(np.fft.fftfreq(_SIZE)[:, None], np.fft.rfftfreq(_SIZE))
    frequency[0, 0] = np.inf  # the mean is set later
    spectrum = np.fft.rfft2(rng.standard_normal((_SIZE, _SIZE))) / frequency**_SLOPE
    return np.fft.irfft2(spectrum, (_SIZE, _SIZE))


def _needles(rng: np.random.Generator) -> npt.NDArray[Any]:
    """Draw lines in the three directions of a crystal, which fade towards their ends."""
    canvas = np.zeros((_SIZE, _SIZE))
    base = rng.uniform(0, np.pi)
    angles = base + np.pi / 3 * rng.integers(-1, 2, _NEEDLES) + rng.normal(0, 0.1, _NEEDLES)
    lengths, places = rng.uniform(4, 24, _NEEDLES), rng.uniform(0, _SIZE, (_NEEDLES, 2))
    along = np.linspace(-1, 1, 64)
    reach = np.outer(lengths, along)
    rows = places[:, :1] + reach * np.sin(angles)[:, None]
    columns = places[:, 1:] + reach * np.cos(angles)[:, None]
    light = np.outer(lengths * rng.uniform(0.3, 1, _NEEDLES), 1 - np.abs(along))
    np.add.at(canvas, (rows.astype(int) % _SIZE, columns.astype(int) % _SIZE), light)
    blurred: npt.NDArray[Any] = ndimage.gaussian_filter(canvas, 0.3, mode="wrap")
    return blurred


def _standard(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return (values - values.mean()) / values.std()
