import numpy as np
import pytest


@pytest.fixture(scope="session")
def photos():
    """Twelve pictures of 32 x 32 with smooth parts, edges, texture, black, white and grey."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32] / 31
    pictures = []
    for _ in range(12):
        phase, pitch = rng.uniform(0, 6, 3), rng.uniform(2, 9, (2, 3))
        waves = np.sin(y[..., None] * pitch[0] + x[..., None] * pitch[1] + phase)
        picture = 127 + 90 * waves + rng.normal(0, 12, (32, 32, 3))
        top, left = rng.integers(2, 20, 2)
        picture[top : top + 8, left : left + 10] = rng.uniform(0, 255, 3)
        picture[:3, :3], picture[:3, 3:6], picture[3:6, :3] = 0, 255, 128
        pictures.append(picture.clip(0, 255).astype(np.uint8))
    return np.stack(pictures)
