import importlib
import math
import time

import pytest

from freetickets.bench import NAMES, timing
from freetickets.bench.timing import Ratio, Timing, compare, interleave, versus


def pair(ours, other, side="dense"):
    return {"sparse": Timing(ours, ours / 2, 5), side: Timing(other, other / 4, 5)}


def test_the_sides_run_in_turn_after_one_run_to_warm_up():
    calls: list[str] = []
    sides = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    timings = interleave(sides, 2)
    assert calls == [*"abc"] * 3
    assert list(timings) == [*"abc"]
    assert all(0 <= each.fastest <= each.median for each in timings.values())


def test_a_short_side_is_called_several_times_in_a_row(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def short():
        clock[0] += 0.25

    def long():
        clock[0] += 2.0

    timings = interleave({"short": short, "long": long}, 3, least=1.0)
    assert timings == {"short": Timing(0.25, 0.25, 3), "long": Timing(2.0, 2.0, 3)}
    # Two calls of each to find the number of calls, then three times four and three times one.
    assert clock[0] == (2 + 12) * 0.25 + (2 + 3) * 2.0


def test_a_ratio_is_that_of_medians_to_the_fastest_other_side_times_the_factor():
    timings = {"a": Timing(3, 2), "b": Timing(6, 5), "c": Timing(4, 4)}
    found = versus(timings, "a", ["b", "c"])
    assert list(found.items()) == [("a", Timing(3, 2)), ("c", Timing(4, 4))]
    assert list(versus(timings, "a", ["b"], "ours")) == ["ours", "b"]
    found = compare("x", pair(2.0, 8.0), (0.8, 0.7), factor=3)
    seconds = {"sparse": 2.0, "dense": 8.0}
    assert found == Ratio("x", 0.75, 3 * 1.0 / 2.0, 0.8, 0.7, seconds, repeats=5)
    told = found.as_json()
    assert list(told) == [
        *("name", "value", "best", "speedup", "bar", "aim", "met", "aimed"),
        *("seconds", "memory", "repeats"),
    ]
    assert told["speedup"] == pytest.approx(4 / 3)
    assert (told["met"], told["aimed"]) == (True, False)
    free = compare("x", pair(2.0, 8.0)).as_json()
    assert [free[key] for key in ("bar", "aim", "met", "aimed")] == [None] * 4


def test_pairs_have_the_geometric_mean_of_their_ratios_and_sides_one_go():
    pairs = [pair(1, 2), pair(1, 8), pair(5, 4)]
    rows = [compare("", each) for each in pairs]
    mean = compare("", timing.geometric_mean(pairs))
    assert mean.value == pytest.approx(math.prod(row.value for row in rows) ** (1 / 3))
    assert mean.best == pytest.approx(math.prod(row.best for row in rows) ** (1 / 3))
    assert mean.value == pytest.approx(mean.seconds["sparse"] / mean.seconds["dense"])
    # A total adds up, and names all sides that were fastest.
    found = timing.total([pair(1, 2, "contiguous"), pair(3, 10, "channels_last")])
    other = "channels_last or contiguous", Timing(12, 3, 5)
    assert list(found.items()) == [("sparse", Timing(4, 2, 5)), other]
    found = timing.ratio("x", {"ours": lambda: None, "other": lambda: None}, 3, bar=1.0)
    assert list(found.seconds) == ["ours", "other"]
    assert (found.name, found.bar, found.aim, found.repeats) == ("x", 1.0, None, 3)


def test_the_keys_of_the_machine_and_of_bars_are_those_of_its_instructions(monkeypatch):
    monkeypatch.setattr(timing, "available", lambda: True)
    for name, bar in (("baseline", 0.6), ("avx512", 0.5)):
        monkeypatch.setattr(timing, "instruction_set", lambda name=name: name)
        assert timing.Bars((0.5, 0.4), (0.6, 0.5)).here[0] == bar
    assert list(timing.machine()) == ["cpu", "threads", "torch", "python", "kernels"]


@pytest.mark.parametrize("what", NAMES)
def test_every_name_of_the_command_line_is_a_measurement(what):
    module = importlib.import_module(f"freetickets.bench.{what.replace('-', '_')}")
    assert all(callable(getattr(module, name.replace("-", "_"))) for name in NAMES[what])
