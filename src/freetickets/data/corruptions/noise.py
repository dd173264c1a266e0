"""Noise of each value by itself: Gaussian, shot, impulse, speckle."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .streams import Streams

_GAUSSIAN = (0.04, 0.06, 0.08, 0.09, 0.10)
_PHOTONS = (500, 250, 100, 75, 50)
_AMOUNT = (0.01, 0.02, 0.03, 0.05, 0.07)
_SPECKLE = (0.06, 0.1, 0.12, 0.16, 0.2)


def gaussian_noise(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Add normal noise to every value."""
    return 255 * np.clip(images / 255 + _GAUSSIAN[severity - 1] * _normal(images, streams), 0, 1)


def shot_noise(images: npt.NDArray[np.uint8], severity: int, streams: Streams) -> npt.NDArray[Any]:
    """Count photons: a Poisson number, whose mean is the value times the photons of white."""
    photons = _PHOTONS[severity - 1]
    counts = streams.draw_for(images / 255 * photons, lambda rng, mean: rng.poisson(mean))
    return 255 * np.clip(counts / photons, 0, 1)


def impulse_noise(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Replace a share of the values by 0 and as many by 255, each channel by itself."""
    amount = _AMOUNT[severity - 1]
    lot = streams.draw(lambda rng: rng.random(images.shape[1:]))
    return np.where(lot < amount / 2, 0, np.where(lot < amount, 255, images))


def speckle_noise(
    images: npt.NDArray[np.uint8], severity: int, streams: Streams
) -> npt.NDArray[Any]:
    """Add normal noise in proportion to the value."""
    noise = 1 + _SPECKLE[severity - 1] * _normal(images, streams)
    return 255 * np.clip(images / 255 * noise, 0, 1)


def _normal(images: npt.NDArray[Any], streams: Streams) -> npt.NDArray[Any]:
    return streams.draw(lambda rng: rng.standard_normal(images.shape[1:]))
