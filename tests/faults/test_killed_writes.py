"""SIGKILL inside a write: the file is whole or absent, and the run ends the same."""

from functools import partial

import fault_child
import pytest

from freetickets.storage import load_tree

# Of a write that was left there: the temporary file's share of the whole, and the file itself.
FOUND = {
    "opened": (0, False),
    "half written": (0.5, False),
    "written": (1, False),
    "renamed": (None, True),
    "safe": (None, True),
}


@pytest.mark.parametrize("number", [1, 2, 8])
@pytest.mark.parametrize("stage", fault_child.STAGES)
def test_killed_at_any_stage_of_a_checkpoint_it_ends_the_same(
    child, command, assert_goes_on, tmp_path, stage, number
):
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
def test_killed_inside_any_other_write_it_ends_the_same(
    child, command, assert_goes_on, tmp_path, file, number, stage
):
    run = tmp_path / "run"
    fault = partial(fault_child.killed_in_write, file, stage, number)
    assert child(*command(), "-o", run, faults=(fault,)).code == -9
    folder = (run / file).parent
    hidden = [each.name for each in folder.glob(".*") if each.name != ".lock"]
    assert bool(hidden) == (stage == "half written")
    assert_goes_on(run)
