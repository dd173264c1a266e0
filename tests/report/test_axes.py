"""Where labels stand, and which points of a curve are drawn."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetickets.report.figures.axes import thin
from freetickets.report.figures.points import Box, place_labels

FRAME = Box(0, 0, 200, 200)


def test_a_label_stands_left_of_its_point_where_the_right_has_no_room():
    (place,) = place_labels([(190, 100)], [40], 10, FRAME, [])
    assert place.right < 190
    assert place.excess(FRAME) == 0


def test_labels_of_near_points_do_not_cover_each_other():
    points = [(50.0, 100.0), (50.0, 101.0), (52.0, 103.0), (51.0, 99.0)]
    places = place_labels(points, [60, 50, 40, 60], 10, FRAME, [])
    assert not any(one.overlap(other) for one, other in itertools.combinations(places, 2))


def test_a_label_avoids_a_block_but_rather_crosses_a_thin_line_than_stands_far_away():
    blocked, line = Box(50, 90, 200, 110), Box(70, 0, 72, 200)
    (place,) = place_labels([(45, 100)], [40], 10, FRAME, [blocked])
    assert place.overlap(blocked) < 20
    (place,) = place_labels([(50, 100)], [40], 10, FRAME, [line])
    assert (place.bottom + place.top) / 2 == 100


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


def test_a_straight_line_keeps_its_ends_and_what_is_not_finite_is_left_out():
    x = np.linspace(0, 1, 100)
    assert [part.tolist() for part in thin(x, 2 * x)] == [[0, 1], [0, 2]]
    found = thin([0, 1, 2, math.nan], [0, math.inf, 5, 1])
    assert [part.tolist() for part in found] == [[0, 2], [0, 5]]


@given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), max_size=40))
def test_a_thinned_curve_is_part_of_the_curve_in_its_order(points):
    x, y = thin([x for x, _ in points], [y for _, y in points], most=10)
    kept = list(zip(x.tolist(), y.tolist(), strict=True))
    assert len(kept) <= 10
    rest = iter(points)
    assert all(point in rest for point in kept)
    assert not points or (kept[0], kept[-1]) == (points[0], points[-1])
