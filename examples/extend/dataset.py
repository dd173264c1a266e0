"""A data set of one's own: points on rings.

freetickets train edst --dataset dataset:rings --model mlp-64
"""

from typing import Any

import numpy as np

from freetickets.data import DatasetSpec, OwnDataset

_SIZES = {"train": 1200, "test": 600}


def read(split: str) -> tuple[Any, Any]:
    """Draws the points of "train" or "test": always the same ones."""
    rng = np.random.default_rng(0 if split == "train" else 1)
    labels = np.arange(_SIZES[split]) % 3
    angle = rng.uniform(0, 2 * np.pi, labels.size)
    radius = labels + 1 + 0.15 * rng.normal(size=labels.size)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), labels


rings = OwnDataset(
    DatasetSpec(
        name="rings", description="points on three rings around each other", source="drawn",
        classes=("inner", "middle", "outer"), shape=(2, 1, 1), mean=(), std=(),
        train_size=_SIZES["train"], test_size=_SIZES["test"], augmentation="none", recipe="small",
    ),
    read,
)  # fmt: skip
