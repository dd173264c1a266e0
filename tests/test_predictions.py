"""Files of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freetickets import seal
from freetickets.errors import DamagedFileError, NewerFileError
from freetickets.predictions import Predictions, read_info

LOGS = np.log(np.full((2, 6, 4), 0.25, dtype=np.float32))
LABELS = np.zeros(6, dtype=np.int64)
INFO = {"dataset": "toy", "combine": "probabilities"}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    Predictions(LOGS, LABELS, {**INFO, "parts": ["1", "2"]}).save(tmp_path / "toy.npz")
    one, two = Predictions.load(tmp_path / "toy.npz").parts
    assert np.array_equal(np.concatenate([one.outputs, two.outputs], axis=1), LOGS)
    assert (one.info, two.labels.tolist()) == ({**INFO, "part": "1"}, [0, 0, 0])


@pytest.mark.parametrize(
    ("logs", "labels", "info"),
    [
        (LOGS[0], LABELS, INFO),
        (LOGS, LABELS[1:], INFO),
        (LOGS, LABELS, {**INFO, "parts": ["1", "2", "3", "4"]}),
        (LOGS, LABELS, {**INFO, "parts": []}),
        (LOGS, LABELS + 5, INFO),
        (LOGS, LABELS, {**INFO, "combine": 3}),
        (LOGS, LABELS, {**INFO, "samples": [3]}),
        (LOGS, LABELS, {**INFO, "kind": "attack", "parts": ["1"]}),
        (LOGS, LABELS, {**INFO, "kind": "shift", "parts": ["much"]}),
    ],
)
def test_a_file_that_does_not_fit_together_is_damaged(
    tmp_path: Path, logs: Any, labels: Any, info: Any
) -> None:
    Predictions(logs, labels, info).save(tmp_path / "toy.npz")
    with pytest.raises(DamagedFileError, match=r"toy.npz is damaged .*: remove it"):
        Predictions.load(tmp_path / "toy.npz")


def test_predictions_of_a_later_format_are_told_from_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "FORMAT", 2)
    Predictions(LOGS, LABELS, INFO).save(tmp_path / "toy.npz")
    monkeypatch.setattr(seal, "FORMAT", 1)
    for load in (Predictions.load, read_info):
        with pytest.raises(NewerFileError, match=r"toy\.npz is of format 2, .* wrote it"):
            load(tmp_path / "toy.npz")
