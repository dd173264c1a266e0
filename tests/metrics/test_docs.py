"""What docs/metrics.md shows is run, and it leaves no metric out."""

import doctest
from pathlib import Path

import freetickets as ft

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_every_metric_is_described_and_examples_print_what_they_say():
    text = PAGE.read_text()
    functions = {name for name in ft.metrics.__all__ if name.islower()}
    described = {name for name in functions if f"`{name}" in text}
    # The matrix beside the scores that hold it.
    assert functions - described == {"transfer_matrix"}
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 5
    assert found.failed == 0
