from __future__ import annotations

import pytest

from freetickets.tasks import CLASSIFICATION
from freetickets.training.progress import Reporter
from freetickets.training.state import Clock


def row(**values: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "run": 1, "phase": "refine 1", "epoch": 12.0, "lr": 0.05, "train_loss": 0.123,
        "train_accuracy": 0.981, "validation_loss": 0.456, "validation_accuracy": 0.871,
    }  # fmt: skip
    return {**usual, **values}


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"validation_loss": None},
        {
            "run": 12, "phase": "refine 12", "epoch": 450.0, "lr": 0.000125, "train_loss": 12.3456,
            "train_accuracy": 1.0, "validation_loss": 12.3456, "validation_accuracy": 1.0,
        },
    ],
)  # fmt: skip
def test_the_line_of_an_epoch_fits_into_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, values: dict[str, object]
) -> None:
    monkeypatch.setattr(Clock, "seconds_left", 99 * 3600 + 3599)
    Reporter().epoch(row(**values), Clock(90, 200), CLASSIFICATION.running)
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= 100
    assert line.startswith("[ 45%] run 1")
    assert line.endswith("99:59:59 left")


def test_a_log_says_what_comes_before_it_takes_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter().phase(1, "explore", 150.0, 52800, Clock(0, 100_000))
    assert capsys.readouterr().err == "[  0%] run 1 explore: 150 epochs, 52,800 steps\n"
