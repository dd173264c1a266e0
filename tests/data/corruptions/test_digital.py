from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from freetickets.data.corruptions import corrupt


@pytest.mark.parametrize(("severity", "quality"), list(enumerate((80, 65, 58, 50, 40), 1)))
def test_jpeg_is_pillows(photos: np.ndarray, severity: int, quality: int) -> None:
    for image, result in zip(photos, corrupt(photos, "jpeg_compression", severity), strict=True):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        assert np.array_equal(np.asarray(Image.open(file)), result)


@pytest.mark.parametrize(("severity", "size"), list(enumerate((30, 28, 27, 24, 20), 1)))
def test_pixelate_leaves_so_many_rows_and_columns(
    photos: np.ndarray, severity: int, size: int
) -> None:
    result = corrupt(photos, "pixelate", severity)
    for image, pixelated in zip(photos, result, strict=True):
        small = Image.fromarray(image).resize((size, size), Image.Resampling.BOX)
        large = small.resize((32, 32), Image.Resampling.BOX)
        assert np.array_equal(np.asarray(large), pixelated)
    # Some rows are doubled, so that `size` different ones are left.
    assert (np.diff(result.astype(int), axis=1) != 0).any(axis=(0, 2, 3)).sum() == size - 1
