import math

import pytest

from freetickets.sparsity import Exploration, GradualPruning
from freetickets.sparsity.schedule import anneal


def test_explorations_come_by_interval_and_their_rates_start_and_end_exactly(refused):
    exploration = Exploration(rate=0.3, interval=4, stop=12)
    explored = {step: exploration(step) for step in range(1, 30) if exploration(step)}
    assert explored == {4: 0.3, 8: 0.3, 12: 0.3}
    assert [Exploration()(step) for step in (99, 100, 88_000, 88_001)] == [0, 0.5, 0.5, 0]
    cosine = Exploration(0.5, 10, "cosine", final_rate=0.005, steps=1000)
    linear = Exploration(0.4, 25, "linear", steps=100)
    for step in range(10, 1001, 10):
        expected = 0.005 + 0.495 * (1 + math.cos(math.pi * step / 1000)) / 2
        assert cosine(step) == pytest.approx(expected)
    assert cosine(2000) == cosine(1000) == 0.005
    assert [linear(s) for s in (25, 50, 75, 100, 125)] == pytest.approx([0.3, 0.2, 0.1, 0, 0])
    for schedule in ("cosine", "linear", "constant"):
        assert anneal(schedule, 0.5, 0.5 if schedule == "constant" else 0.005, 0.0) == 0.5
    assert [anneal(name, 0.5, 0.005, 1.0) for name in ("cosine", "linear")] == [0.005, 0.005]
    assert anneal("constant", 0.5, 0.005, 1.0) == 0.5
    refused("did you mean 'linear'", anneal, "liner", 1.0, 0.0, 0.5)


def test_gradual_pruning_is_the_papers_cubic_and_ends_exactly():
    pruning = GradualPruning(0.9, 0.2, begin=10, end=95, interval=20)
    found = {step: pruning(step) for step in range(200) if pruning(step) is not None}
    assert list(found) == [10, 30, 50, 70, 90, 95]
    for step, sparsity in found.items():
        assert sparsity == pytest.approx(0.9 + (0.2 - 0.9) * (1 - (step - 10) / 85) ** 3)
    assert found[10] == pytest.approx(0.2)
    assert found[95] == 0.9


def test_a_schedule_that_makes_no_sense_is_refused(refused):
    for kind, options, message in (
        *(
            (Exploration, {name: rate}, f"^{name} must lie between 0 and 1")
            for name in ("rate", "final_rate")
            for rate in (-0.1, 1.1, math.nan)
        ),
        (Exploration, {"interval": 0}, "at least 1 step"),
        *((Exploration, {"schedule": "cosine", "steps": n}, "needs steps") for n in (None, 0, -5)),
        (Exploration, {"schedule": "cosin", "steps": 10}, "did you mean 'cosine'"),
        (GradualPruning, {"final": 1.0, "end": 9}, "final < 1"),
        (GradualPruning, {"final": 0.5, "initial": 0.6, "end": 9}, "initial <= final"),
        (GradualPruning, {"final": 0.5, "initial": -0.1, "end": 9}, "0 <= initial"),
        (GradualPruning, {"final": math.nan, "end": 9}, "final=nan"),
        (GradualPruning, {"final": 0.5, "begin": 9, "end": 9}, "begin before it ends"),
        (GradualPruning, {"final": 0.5, "begin": -1, "end": 9}, "begin before it ends"),
        (GradualPruning, {"final": 0.5, "end": 9, "interval": 0}, "at least 1 step"),
    ):
        refused(message, kind, **options)
