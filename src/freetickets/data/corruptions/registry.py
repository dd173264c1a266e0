"""Which function makes which corruption: (images (N, H, W, 3), severity, streams) -> 0 .. 255."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .blur import defocus_blur, gaussian_blur, glass_blur, zoom_blur
from .colour import brightness, contrast, saturate
from .digital import jpeg_compression, pixelate
from .elastic import elastic_transform
from .motion import motion_blur
from .noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from .spatter import spatter
from .streams import Streams
from .weather import fog, snow

Corruption = Callable[[npt.NDArray[np.uint8], int, Streams], npt.NDArray[Any]]

# All but frost, which also needs its pictures.
FUNCTIONS: dict[str, Corruption] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "spatter": spatter,
    "saturate": saturate,
}
