import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from freetickets.bench.figure import ONE_DENSE, Point, check_path, curves, draw_costs
from freetickets.errors import MissingExtraError

GIVEN = ((ONE_DENSE, 0.0, 0.4), ("ERK", 0.9, 0.44), ("ERK", 0.8, 0.58), ("uniform", 0.8, 0.33))
POINTS = [
    Point("", value, value, None, None, {}, 1, curve=curve, sparsity=sparsity)
    for curve, sparsity, value in GIVEN
]


def test_the_figure_names_its_curves_in_order_of_sparsity_and_both_dense_networks():
    assert curves(POINTS) == {
        ONE_DENSE: [(0.0, 0.4)],
        "ERK": [(0.8, 0.58), (0.9, 0.44)],
        "uniform": [(0.8, 0.33)],
    }
    pytest.importorskip("matplotlib")
    svg = draw_costs(POINTS, "a CPU", ".svg")
    ElementTree.fromstring(svg)
    assert svg == draw_costs(POINTS, "a CPU", ".svg")
    text = svg.decode()
    words = ["ERK", "uniform", "0.58", "0.44", "0.33", "a CPU"]
    for word in (*words, "ONE dense, in PyTorch: 1", f"{ONE_DENSE}: 0.4"):
        assert f">{word}<" in text or f"<!-- {word} -->" in text
    assert draw_costs(POINTS, "a CPU", ".png").startswith(b"\x89PNG")


def test_a_figure_of_another_format_or_without_matplotlib_is_refused(refused, monkeypatch):
    refused(r"must end in \.svg or \.png, not 'x\.jpg'", check_path, Path("x.jpg"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"freetickets\[report\]"):
        check_path(Path("x.svg"))
