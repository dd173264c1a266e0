import json
from dataclasses import replace

import pytest

from freetickets.bench import step, timing, train
from freetickets.bench.figure import ONE_DENSE, Point, curves
from freetickets.bench.timing import Ratio, Timing

BARS = {
    "masks": [(1.05, None)],
    "loader": [(0.05, None)],
    "exploration": [(0.1, None)],
    "edst": [(0.55, 0.40), (0.62, 0.50), (None, None), (0.80, 0.68), (None, None), (None, None)],
    "sparsity": [(0.55, 0.40)] + [(None, None)] * 10,
    "medium": [(None, None)] * 5,
    "small-nets": [
        row
        for bars in ((0.48, 0.36), (0.45, 0.35), (0.40, 0.32), (0.55, 0.40), (0.45, 0.33))
        for row in (bars, (None, None), (None, None))
    ],
}


@pytest.mark.parametrize("name", BARS)
def test_every_measurement_runs_and_has_its_bars(tiny, name, monkeypatch):
    monkeypatch.setattr(timing, "instruction_set", lambda: "avx512")
    told = list(getattr(train, name.replace("-", "_"))(tiny))
    rows = [row for row in told if isinstance(row, Ratio)]
    assert all(row.value > 0 for row in rows)
    assert len(told) == len(rows) * (2 if name == "medium" else 1)  # with its rounds
    assert [(row.bar, row.aim) for row in rows] == BARS[name]


def test_steps_of_medium_are_timed_in_rounds(monkeypatch, tiny):
    """A row is of the medians, a line has the ratio of each round: `grids/medium.yaml` has them."""
    seconds = iter(range(1, 8))

    def interleave(sides, repeats):
        theirs = float(next(seconds))
        assert repeats == 3
        return {side: Timing(theirs if "PyTorch" in side else 0.5, 0.1) for side in sides}

    monkeypatch.setattr(train, "interleave", interleave)
    row, line, *_ = train.medium(replace(tiny, repeats=21))
    assert row.value == pytest.approx(0.5 / 4)
    assert line == "in rounds of 3: [" + ", ".join(f"{0.5 / k:.4f}" for k in range(1, 8)) + "]"


def test_an_ensemble_takes_the_epochs_of_its_tickets(monkeypatch, tiny):
    times = {"sparse step S=0.8": 0.3, "sparse step S=0.9": 0.2, "in a loop of one's own": 0.35}
    times |= {"dense in PyTorch": 1.0, "our dense": 0.5}
    fake = {side: Timing(seconds, seconds) for side, seconds in times.items()}
    monkeypatch.setattr(train, "interleave", lambda sides, repeats: fake)
    monkeypatch.setattr(train, "Step", lambda *_, **__: None)
    dense, three, of_ours, seven, _, loop = train.edst(tiny)
    assert dense.value == 0.5
    assert three.value == pytest.approx(1.8 * 0.3)
    assert of_ours.value == pytest.approx(1.8 * 0.3 / 0.5)
    assert seven.value == pytest.approx(3.4 * 0.2)
    assert loop.value == pytest.approx(1.8 * 0.35)
    assert three.seconds == {"sparse step S=0.8": 0.3, "dense in PyTorch": 1.0}
    assert "a whole EDST ensemble of 3" in three.name
    assert "ONE dense model in PyTorch" in three.name
    assert "ONE dense model on our kernels" in of_ours.name


def test_the_cost_over_sparsity_is_that_of_three_tickets_over_both_dense_sides(monkeypatch, tiny):
    def fake(sides, repeats):
        known = {"dense in PyTorch": 1.0, "our dense": 0.5}
        seconds = {side: known.get(side) or 1 - float(side.partition("=")[2]) for side in sides}
        return {side: Timing(each, each) for side, each in seconds.items()}

    monkeypatch.setattr(train, "interleave", fake)
    monkeypatch.setattr(train, "Step", lambda *_, **__: None)
    rows = list(train.sparsity(tiny))
    points = [row for row in rows if isinstance(row, Point)]
    assert curves(points) == {
        ONE_DENSE: [(0.0, 0.5)],
        "ERK": [(s, pytest.approx(1.8 * (1 - s))) for s in (0.8, 0.9, 0.95)],
        "uniform": [(s, pytest.approx(1.8 * (1 - s))) for s in (0.8, 0.9)],
    }
    others = [row for row in rows if row not in points]
    assert [row.value for row in others] == pytest.approx([2 * p.value for p in points[1:]])
    assert all("on our kernels" in row.name for row in others)


def test_the_factor_of_an_ensemble_is_that_of_its_plan(cli):
    for tickets, factor in ((3, 1.8), (7, 3.4)):
        answer = cli(
            *("plan", "edst", "--tickets", tickets, "--dataset", "cifar10"),
            *("--model", "wrn-10-1", "--json"),
        )
        ledger = json.loads(answer.out)["ledger"]
        epochs = sum(phase["epochs"] for phase in ledger["phases"])
        assert epochs / ledger["dense_epochs"] == factor


def test_peak_memory_is_measured_in_processes_of_their_own(refused, tiny):
    (row,) = train.memory(tiny)
    assert (row.bar, row.aim, row.seconds) == (1.0, 0.8, {})
    assert list(row.memory) == ["sparse", "dense in PyTorch"]
    assert row.value == row.memory["sparse"] / row.memory["dense in PyTorch"]
    refused(r"can't be measured: .*unknown model 'nothing'", step.peak_memory, "nothing", 2, 0.8, 1)
