"""The test set of the data that an ensemble was trained on: what other sets are measured by."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from .. import data
from ..data import DatasetSpec, Split
from ..data.ood import digest, fingerprints
from ..data.spec import data_root
from ..ensemble import Ensemble
from ..errors import FreeTicketsError
from .sets import AnySplit, EvaluationSet, first_samples, of_parts


@dataclass
class Home:
    """A data set that an ensemble knows.

    Attributes:
        spec: What the data set is.
        whole: All its test samples.
        data_dir: Where data sets lie.
        limit: How many samples to take, the first; None for all.
    """

    spec: DatasetSpec
    whole: AnySplit
    data_dir: str | None = None
    limit: int | None = None

    @classmethod
    def of(
        cls, ensemble: Ensemble, name: str, data_dir: str | None = None, limit: int | None = None
    ) -> Home:
        """Loads the test split of a data set.

        Raises:
            FreeTicketsError: Its classes are not the ensemble's.
        """
        spec = data.get_spec(name, data_dir, ensemble.info.get("image_size"), ensemble.task)
        if tuple(spec.classes) != ensemble.classes:
            raise FreeTicketsError(
                f"{name} has other classes than the ensemble was trained on ({len(spec.classes)} "
                f"and {len(ensemble.classes)}): evaluate it on its own data set"
            )
        whole = data.load(spec, "test", data_dir)
        if limit is not None and limit >= len(whole):
            limit = None
        return cls(spec, whole, data_dir, limit)

    @cached_property
    def split(self) -> AnySplit:
        """The samples that are evaluated."""
        return first_samples(self.whole, self.limit)

    @property
    def root(self) -> Path:
        """The folder of all data sets."""
        return data_root(self.data_dir)

    @property
    def stem(self) -> str:
        """What files of predictions are called."""
        return Path(self.spec.name).stem

    @cached_property
    def digest(self) -> str | None:
        """A digest of all test samples, since a file may change; None for photos on disk."""
        return digest(self.whole.inputs) if isinstance(self.whole, Split) else None

    @property
    def is_images(self) -> bool:
        """Whether its samples are images, not features."""
        return not isinstance(self.whole, Split) or self.whole.inputs.dtype == torch.uint8

    @cached_property
    def known(self) -> set[bytes]:
        """Fingerprints of the samples that the ensemble was trained and tested on."""
        splits: list[AnySplit] = [self.whole]
        with suppress(FreeTicketsError):  # where only the test set is here, that is compared with
            splits.append(data.load(self.spec, "train", self.data_dir, download=False))
        return fingerprints(splits)

    def test_set(self) -> EvaluationSet:
        """The test samples themselves."""
        info: dict[str, Any] = {
            "dataset": self.spec.name,
            "split": "test",
            "classes": list(self.spec.classes),
            "samples": self.limit,
            "images": self.digest,
        }
        return of_parts(f"{self.stem}.npz", len(self.split), info, lambda: [self.split])
