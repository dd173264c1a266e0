from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from freetickets.bench.curve import Point, crossover_sparsity, curves
from freetickets.bench.figure import check_path, draw_crossover
from freetickets.errors import FreeTicketsError, MissingExtraError


def point(curve: str, sparsity: float, speedup: float) -> Point:
    return Point("", 1 / speedup, 1 / speedup, None, None, {}, 1, curve=curve, sparsity=sparsity)


POINTS = [
    point(name, sparsity, scale / (1 - sparsity))
    for name, scale in (("wide", 0.5), ("narrow", 0.25))
    for sparsity in (0.0, 0.4, 0.8, 0.9)
]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(0.0, 0.5), (1.0, 2.0)], 0.5),
        ([(0.0, 0.25), (0.3, 0.5), (0.9, 4.0)], 0.5),
        ([(0.0, 0.5), (0.5, 1.0), (0.9, 2.0)], 0.5),
        ([(0.0, 1.5), (0.5, 2.0)], 0.0),
        ([(0.0, 0.5), (0.5, 0.9)], None),
        # A lucky point in between does not count: sparse is faster from there on for good.
        ([(0.0, 0.5), (0.2, 1.1), (0.4, 0.5), (0.8, 2.0)], 0.6),
    ],
)
def test_the_crossover_lies_where_the_logarithm_of_the_speedup_is_zero(points, expected):
    assert crossover_sparsity(points) == pytest.approx(expected)


def test_curves_are_in_order_of_their_sparsity():
    found = curves([point("a", 0.8, 4.0), point("b", 0.5, 1.0), point("a", 0.2, 1.0)])
    assert list(found) == ["a", "b"]
    assert found["a"] == [(0.2, 1.0), (0.8, 4.0)]


def test_the_figure_names_each_curve_and_its_crossover():
    pytest.importorskip("matplotlib")
    svg = draw_crossover(POINTS, "a CPU", ".svg")
    ElementTree.fromstring(svg)
    assert svg == draw_crossover(POINTS, "a CPU", ".svg")
    text = svg.decode()
    for name, points in curves(POINTS).items():
        assert f"{name}: faster from {crossover_sparsity(points):.0%} on" in text
    assert draw_crossover(POINTS, "a CPU", ".png").startswith(b"\x89PNG")


def test_a_figure_of_another_format_is_refused():
    with pytest.raises(FreeTicketsError, match=r"must end in \.svg or \.png, not 'x\.jpg'"):
        check_path(Path("x.jpg"))


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"freetickets\[report\]"):
        check_path(Path("x.svg"))
