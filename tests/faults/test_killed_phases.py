"""SIGKILL at random moments of each phase of each method; see also tools/kill_and_resume.py."""

import random
from functools import partial

import fault_child
import pytest

from freetickets.config import read_run_config
from freetickets.methods import METHODS
from freetickets.training.checkpoint import Checkpoints


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_killed_in_each_phase_it_ends_the_same(
    child, command, peaceful, assert_goes_on, tmp_path, method
):
    run, expected = tmp_path / "run", peaceful(method)
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
