import itertools

from freetickets.report.figures.points import Box, place_labels

FRAME = Box(0, 0, 200, 200)


def test_a_label_stands_left_of_its_point_where_the_right_has_no_room():
    (place,) = place_labels([(190, 100)], [40], 10, FRAME, [])
    assert place.right < 190
    assert place.excess(FRAME) == 0


def test_labels_of_near_points_do_not_cover_each_other():
    points = [(50.0, 100.0), (50.0, 101.0), (52.0, 103.0), (51.0, 99.0)]
    places = place_labels(points, [60, 50, 40, 60], 10, FRAME, [])
    for one, other in itertools.combinations(places, 2):
        assert one.overlap(other) == 0


def test_a_label_avoids_what_stands_beside_its_point():
    blocked = Box(50, 90, 200, 110)
    (place,) = place_labels([(45, 100)], [40], 10, FRAME, [blocked])
    assert place.overlap(blocked) < 20


def test_a_label_rather_crosses_a_thin_line_than_stands_far_away():
    line = Box(70, 0, 72, 200)
    (place,) = place_labels([(50, 100)], [40], 10, FRAME, [line])
    assert (place.bottom + place.top) / 2 == 100
