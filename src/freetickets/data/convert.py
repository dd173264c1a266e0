"""Images of one shape made into images of another: the one rule for sets of other pictures."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..errors import FreeTicketsError
from .decode import fit, pixels

Images = npt.NDArray[np.uint8]


def match_shape(images: Images, shape: tuple[int, ...], what: str, resize: bool) -> Images:
    """Returns images (N, C, H, W) in the shape (C, H, W) that a network takes.

    Grey becomes colour by repeating it; colour becomes grey by its luma (ITU-R 601, as Pillow has
    it); another size is resized bicubically and its centre cropped, so that proportions stay.

    Args:
        images: uint8, 1 or 3 channels.
        shape: The wanted shape.
        what: What the images are, for the message.
        resize: Whether to do so; if not, images of another shape are refused.

    Raises:
        FreeTicketsError: The shapes differ, and that may not or can't be mended.

    Example:
        >>> grey = np.full((5, 1, 28, 28), 200, np.uint8)
        >>> match_shape(grey, (3, 32, 32), "digits", resize=True).shape
        (5, 3, 32, 32)
    """
    if images.shape[1:] == tuple(shape):
        return images
    found = " x ".join(map(str, images.shape[1:]))
    wanted = " x ".join(map(str, shape))
    if not resize:
        raise FreeTicketsError(
            f"the images of {what} are {found} (channels, height, width) and the ensemble takes "
            f"{wanted}: convert them with --resize"
        )
    if len(shape) != 3 or shape[0] not in (1, 3) or images.shape[1] not in (1, 3):
        raise FreeTicketsError(
            f"the images of {what} ({found}) can't be made {wanted}: only grey and colour can be "
            "converted"
        )
    channels, height, width = shape
    converted = np.empty((len(images), channels, height, width), np.uint8)
    for row, image in zip(converted, images, strict=True):
        picture = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        row[...] = pixels(fit(picture.convert("L" if channels == 1 else "RGB"), height, width))
    return converted
