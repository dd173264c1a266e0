import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from freetickets.report.figures.axes import thin


def furthest(x, y, thin_x, thin_y):
    """How far points lie from the thinned curve, by brute force."""
    points = np.stack([x, y], 1)[:, None]
    start = np.stack([thin_x, thin_y], 1)[:-1]
    chord = np.diff(np.stack([thin_x, thin_y], 1), axis=0)
    along = ((points - start) * chord).sum(-1) / np.maximum((chord**2).sum(-1), 1e-30)
    nearest = start + along.clip(0, 1)[..., None] * chord
    return np.linalg.norm(points - nearest, axis=-1).min(1).max()


def test_a_curve_of_many_points_is_drawn_with_300_and_looks_the_same():
    x = np.sort(np.random.default_rng(0).random(20_000))
    for y in (x**0.05, x**3):
        thin_x, thin_y = thin(x, y)
        assert len(thin_x) <= 300
        assert furthest(x[::20], y[::20], thin_x, thin_y) < 0.001  # a fifth of a point


def test_a_straight_line_keeps_its_ends_only():
    x = np.linspace(0, 1, 100)
    assert [part.tolist() for part in thin(x, 2 * x)] == [[0, 1], [0, 2]]


def test_points_that_are_not_finite_are_left_out():
    x, y = thin([0, 1, 2, math.nan], [0, math.inf, 5, 1])
    assert x.tolist() == [0, 2]
    assert y.tolist() == [0, 5]


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), max_size=40))
def test_a_thinned_curve_is_part_of_the_curve_in_its_order(points):
    x, y = thin([x for x, _ in points], [y for _, y in points], most=10)
    kept = list(zip(x.tolist(), y.tolist(), strict=True))
    assert len(kept) <= 10
    rest = iter(points)
    assert all(point in rest for point in kept)
    if points:
        assert kept[0] == points[0]
        assert kept[-1] == points[-1]
