import itertools
import math
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freetickets.report.figures.drawing import thin
from freetickets.report.figures.points import (
    cost_against_quality,
    overlap,
    pareto_front,
    place_labels,
)
from freetickets.report.figures.scores import members_and_ensembles
from freetickets.report.figures.training import learning_rates, phase_spans, training_curves
from freetickets.report.run import read_runs

from .conftest import log_rows, scores
from .svg import assert_sound, texts


@pytest.fixture(scope="module")
def panels(runs):
    training = [training_curves(run, number) for number, run in enumerate(runs)]
    return [*cost_against_quality(runs), *members_and_ensembles(runs), *training[0], *training[1]]


def test_equal_runs_give_equal_bytes_whatever_the_users_own_settings_are(runs, panels):
    import matplotlib

    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert cost_against_quality(runs) == panels[:4]
    assert training_curves(runs[0], 0) == panels[6:8]
    assert matplotlib.rcParams["svg.hashsalt"] is None  # drawing leaves no global state
    assert matplotlib.rcParams["text.parse_math"]


def test_panels_are_sound_and_name_phases_tickets_escapes_and_the_explored_share(panels):
    assert_sound(panels)
    for panel in panels[6:8]:
        assert {"explore", "refine 1", "refine 2", "ticket", "escape"} <= set(texts(panel))
    for panel in panels[8:10]:
        assert "train" in texts(panel)
        assert "escape" not in texts(panel)
    assert ["explored" in texts(panel) for panel in (panels[7], panels[9])] == [True, False]


def test_runs_without_validation_and_several_trainings_are_drawn(write_run):
    log = log_rows(validation_loss=None, validation_accuracy=None)
    (run,) = read_runs([write_run(log=log)])
    for panel in training_curves(run):
        assert "training" in texts(panel)
        assert "validation" not in texts(panel)
    (run,) = read_runs([write_run("two", log=log_rows([("train", 3, "collect")], runs=2))])
    spans = phase_spans(run.log)
    assert [span[:3] for span in spans] == [("run 1", 0, 3), ("run 2", 3, 6)]
    assert spans[1].epochs == (4, 5, 6)
    (run,) = read_runs([write_run("phases", log=log_rows(runs=2))])
    labels = [span.label for span in phase_spans(run.log)]
    assert (labels[0], labels[-1]) == ("1: explore", "2: refine 2")


def write_cycles(write_run, **settings):
    """Two dense trainings of five epochs in cycles of 10 steps an epoch: one up, four down."""
    config = {"method": "dense", "options": {"tickets": 2}, "dataset": "tiny", "model": "mlp-30"}
    config |= {"recipe": "fast", "lr": 0.1, "epochs": 5, **settings}
    log = log_rows([("train", 5, "collect")], runs=2)
    for row in log:
        step = row["step"]
        row["lr"] = 0.02 + 0.008 * (step - 1) if step <= 10 else 0.1 * (51 - step) / 40
    (run,) = read_runs([write_run(str(settings), config=config, log=log)])
    return run


def test_cycles_are_drawn_as_they_are_and_the_log_where_the_plan_is_another(write_run):
    run = write_cycles(write_run)
    curve = learning_rates(run)
    assert curve == sorted(curve, key=lambda point: point[0])
    for epoch, rate in curve:
        within = epoch % 5
        exact = 0.02 + 0.08 * within if within < 1 else 0.1 * (5 - within) / 4
        assert rate == pytest.approx(exact) or epoch in (5, 10)
    rates = dict(curve)
    assert rates[1] == rates[6] == pytest.approx(0.1)  # no row of the log has the peak
    assert rates[5] == pytest.approx(0.02)  # where the second network begins
    assert curve[0] == (0, pytest.approx(0.02))
    assert curve[-1][0] == 10
    assert learning_rates(write_cycles(write_run, lr=0.2)) == []
    assert learning_rates(write_cycles(write_run, epochs=4)) == []
    assert learning_rates(write_cycles(write_run, recipe="unheard-of")) == []
    assert learning_rates(write_cycles(write_run, recipe="cifar")) == []
    assert training_curves(write_cycles(write_run, lr=0.3))


def test_many_short_phases_and_runs_are_named_as_far_as_there_is_room(write_run):
    phases = [(f"refine {number}", 1, "collect escape") for number in range(1, 101)]
    (run,) = read_runs([write_run(log=log_rows(phases))])
    named = [text for text in texts(training_curves(run)[0]) if text.startswith("refine")]
    assert named[0] == "refine 1"
    assert 10 < len(named) < 60
    runs = read_runs([write_run(f"run-{letter}") for letter in "abcdefgh"])
    shown = texts(cost_against_quality(runs)[0])
    assert {"1", "8", "1 run-a", "8 run-h"} <= set(shown)
    assert "run-a" not in shown
    assert "Pareto front" in shown
    assert "Pareto front" not in texts(cost_against_quality(runs[:1])[0])


def test_scores_that_are_not_finite_are_left_out(write_run):
    broken = {**scores(0.5), "nll": None}
    metrics = {"members": [broken, broken], "member_mean": broken, "ensemble": broken}
    some = {"members": [broken, scores(0.5)], "member_mean": broken}
    log = log_rows(validation_loss="")
    runs = read_runs([write_run("a", metrics=metrics, log=log), write_run("b", metrics=some)])
    for panel in cost_against_quality(runs)[2:]:  # of the NLL
        assert "a" not in texts(panel)
        assert "b" in texts(panel)
    for panel in (*members_and_ensembles(runs), *training_curves(runs[0])):
        ElementTree.fromstring(panel)
        assert "nan" not in panel
    assert cost_against_quality(runs[:1])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12), st.booleans())
def test_none_beats_those_on_the_pareto_front_and_all_others_are_beaten(runs, rising):
    sign = 1 if rising else -1

    def beaten(cost, score):
        return any(
            other <= cost and sign * better >= sign * score and (other, better) != (cost, score)
            for other, better in runs
        )

    front = pareto_front([cost for cost, _ in runs], [score for _, score in runs], rising)
    assert {runs[number] for number in front} == {run for run in runs if not beaten(*run)}
    assert [runs[number][0] for number in front] == sorted(runs[number][0] for number in front)


def test_seconds_stand_beside_flops_where_they_are_known(runs):
    panels = cost_against_quality(runs)
    across = ["training FLOPs, × one dense model", "training seconds"] * 2
    assert [title for panel in panels for title in across[:2] if title in texts(panel)] == across
    for panel, title in zip(panels, across, strict=True):
        assert ("one dense model" in texts(panel)) == ("FLOPs" in title)
    untimed = [
        replace(run, ledger=replace(run.ledger, phases=tuple(
            replace(phase, seconds=0.0) for phase in run.ledger.phases))) for run in runs
    ]  # fmt: skip
    assert len(cost_against_quality(untimed)) == 2


FRAME = (0, 0, 200, 200)


def test_labels_stand_beside_their_points_where_there_is_room():
    assert place_labels([(10, 50)], [30], 8, FRAME, [])[0].tolist() == [16, 46, 46, 54]
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
