"""Both sides of the ratio train the same ensemble, and a failure is not timed."""

import pytest

from freetickets.bench import side_by_side
from freetickets.bench.timing import Ratio, Settings
from freetickets.errors import FreeTicketsError


def test_both_sides_are_the_same_training_and_one_that_fails_is_no_time(monkeypatch):
    with pytest.raises(FreeTicketsError, match="the training failed: freetickets: unknown model"):
        side_by_side._run(["train", "dst", "--model", "cnm"])
    commands: list[list[str]] = []
    monkeypatch.setattr(side_by_side, "_run", commands.append)
    (found,) = side_by_side.members(Settings(10, 1, small=True))
    assert isinstance(found, Ratio)
    assert (found.bar, list(found.seconds)) == (0.75, ["side by side", "one after the other"])
    outputs = [command.pop(command.index("--output") + 1) for command in commands]
    assert len(set(outputs)) == len(commands) == 6  # a warm-up and two repeats of each
    alone = [command for command in commands if "--jobs" not in command]
    assert len(alone) == 3
    others = [command for command in commands if "--jobs" in command]
    assert all(command == [*alone[0], "--jobs", "2"] for command in others)
