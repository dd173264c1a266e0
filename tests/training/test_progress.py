from dataclasses import replace

import pytest

from freetickets.tasks import CLASSIFICATION
from freetickets.training.progress import Reporter
from freetickets.training.state import Clock, LogRow

ROW = LogRow(1, "refine 1", 12.0, 7, 0.05, 0.123, 0.981, 0.456, 0.871, None, "", 1.0)
LONG = LogRow(12, "refine 12", 450.0, 7, 0.000125, 12.3456, 1.0, 12.3456, 1.0, None, "", 1.0)


@pytest.mark.parametrize("row", [ROW, replace(ROW, validation_loss=None), LONG])
def test_the_line_of_an_epoch_fits_into_100_columns(capsys, monkeypatch, row):
    monkeypatch.setattr(Clock, "seconds_left", 99 * 3600 + 3599)
    Reporter().epoch(row, Clock(90, 200), CLASSIFICATION.running)
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) <= 100
    assert line.startswith("[ 45%] run 1")
    assert line.endswith("99:59:59 left")


def test_a_log_says_what_comes_before_it_takes_its_time(capsys):
    Reporter().phase(1, "explore", 150.0, 52800, Clock(0, 100_000))
    assert capsys.readouterr().err == "[  0%] run 1 explore: 150 epochs, 52,800 steps\n"
