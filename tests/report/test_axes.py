"""Where labels stand, and which points of a curve are drawn."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetickets.report.figures.drawing import thin
from freetickets.report.figures.points import overlap, place_labels

FRAME = (0, 0, 200, 200)


def test_labels_stand_beside_their_points_where_there_is_room():
    (place,) = place_labels([(190, 100)], [40], 10, FRAME, [])
    assert place[2] < 190
    assert overlap(FRAME, place) == pytest.approx(40 * 10)
    points = [(50.0, 100.0), (50.0, 101.0), (52.0, 103.0), (51.0, 99.0)]
    places = place_labels(points, [60, 50, 40, 60], 10, FRAME, [])
    assert not any(overlap(one, other) for one, other in itertools.combinations(places, 2))
    blocked, line = (50, 90, 200, 110), (70, 0, 72, 200)
    (place,) = place_labels([(45, 100)], [40], 10, FRAME, [blocked])
    assert overlap(blocked, place) < 20
    # It rather crosses a thin line than stands far away.
    (place,) = place_labels([(50, 100)], [40], 10, FRAME, [line])
    assert (place[1] + place[3]) / 2 == 100


@pytest.mark.parametrize("power", [0.05, 3])
def test_a_curve_of_many_points_is_drawn_with_300_and_looks_the_same(power):
    x = np.sort(np.random.default_rng(0).random(20_000))
    kept = np.stack(thin(x, x**power), 1)
    assert len(kept) <= 300
    # How far points lie from the thinned curve, by brute force.
    points, chord = np.stack([x, x**power], 1)[::20, None], np.diff(kept, axis=0)
    along = ((points - kept[:-1]) * chord).sum(-1) / np.maximum((chord**2).sum(-1), 1e-30)
    nearest = kept[:-1] + along.clip(0, 1)[..., None] * chord
    assert np.linalg.norm(points - nearest, axis=-1).min(1).max() < 0.001  # a fifth of a point


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), max_size=40))
def test_a_thinned_curve_is_part_of_the_curve_in_its_order(points):
    x, y = thin([x for x, _ in points], [y for _, y in points], most=10)
    kept = list(zip(x.tolist(), y.tolist(), strict=True))
    assert len(kept) <= 10
    rest = iter(points)
    assert all(point in rest for point in kept)
    assert not points or (kept[0], kept[-1]) == (points[0], points[-1])


def test_a_straight_line_keeps_its_ends_and_what_is_not_finite_is_left_out():
    x = np.linspace(0, 1, 100)
    assert [part.tolist() for part in thin(x, 2 * x)] == [[0, 1], [0, 2]]
    found = thin([0, 1, 2, math.nan], [0, math.inf, 5, 1])
    assert [part.tolist() for part in found] == [[0, 2], [0, 5]]
