"""SIGKILL inside a write, or in a phase: each file is whole or absent, and the run ends the same.

See also tools/kill_and_resume.py.
"""

import random
from functools import partial

import fault_child
import pytest

from freetickets.config import read_run_config
from freetickets.methods import METHODS
from freetickets.storage import load_tree
from freetickets.training.folder import Checkpoints

# Of a write that was left there: the temporary file's share of the whole, and the file itself.
FOUND = {
    "opened": (0, False), "half written": (0.5, False), "written": (1, False),
    "renamed": (None, True), "safe": (None, True),
}  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 8])
@pytest.mark.parametrize("stage", fault_child.STAGES)
def test_killed_at_a_checkpoint_ends_alike(child, command, assert_goes_on, tmp_path, stage, number):
    run, name = tmp_path / "run", f"{number:06d}.safetensors"
    fault = partial(fault_child.killed_in_write, "checkpoint/*", stage, number)
    assert child(*command(), "-o", run, faults=(fault,)).code == -9
    # What the kill left is what this stage leaves: else nothing was tested.
    share, there = FOUND[stage]
    left = list((run / "checkpoint").glob(f".{name}.*"))
    assert len(left) == (share is not None)
    assert (run / "checkpoint" / name).exists() == there
    if there:
        load_tree(run / "checkpoint" / name, "freetickets-checkpoint")
    elif share == 0:
        assert left[0].stat().st_size == 0
    if number > 1:
        before = run / "checkpoint" / f"{number - 1:06d}.safetensors"
        load_tree(before, "freetickets-checkpoint")
        if share == 0.5:
            assert 0 < left[0].stat().st_size < before.stat().st_size
    assert_goes_on(run)


@pytest.mark.parametrize("stage", ["half written", "renamed"])
@pytest.mark.parametrize(("file", "number"), fault_child.WRITES)
def test_killed_in_other_writes_ends_the_same(
    child, command, assert_goes_on, tmp_path, file, number, stage
):
    run = tmp_path / "run"
    fault = partial(fault_child.killed_in_write, file, stage, number)
    assert child(*command(), "-o", run, faults=(fault,)).code == -9
    folder = (run / file).parent
    hidden = [each.name for each in folder.glob(".*") if each.name != ".lock"]
    assert bool(hidden) == (stage == "half written")
    assert_goes_on(run)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_in_a_phase_ends_alike(child, command, finished, assert_goes_on, tmp_path, method):
    run, expected = tmp_path / "run", finished(method)
    config = read_run_config(expected)
    plan = config.make_method().plan(config.setting())
    first: dict[str, int] = {}
    for number, each in enumerate(plan.runs):
        for phase in each.phases:
            first.setdefault(phase.name, number)
    # Each phase in the first run that has it, and the end of the last run.
    moments = [(number, phase) for phase, number in first.items()]
    last = len(plan.runs) - 1
    moments += [(last, plan.runs[-1].phases[-1].name)] if last > max(first.values()) else []
    for seed, (number, phase) in enumerate(moments):
        draw = random.Random(f"{method} {seed}")
        fault = partial(fault_child.killed_in_phase, number, phase, draw.randint(1, 4), seed)
        assert child(*command(method), "-o", run, faults=(fault,)).code == -9, (number, phase)
        saved = Checkpoints(run / "checkpoint", lambda _: None).load()
        assert (saved["state"]["run"] if saved else 0) == number
    assert_goes_on(run, method)
