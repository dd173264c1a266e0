"""Snapshot ensembles against the formula of their paper."""

import math

import pytest

from freetickets.errors import FreeTicketsError
from freetickets.methods import Collect, Setting, Snapshot, Timeline, get_recipe


@pytest.mark.parametrize(("tickets", "steps"), [(12, 60), (3, 7), (1, 4)])
def test_the_rate_is_that_of_the_paper(tickets: int, steps: int) -> None:
    plan = Snapshot(tickets=tickets).plan(Setting(get_recipe("cifar")))
    timeline = Timeline(plan.runs[0], steps_per_epoch=steps)
    assert timeline.steps == 200 * steps
    length = math.ceil(timeline.steps / tickets)
    if timeline.steps % tickets:
        return  # the paper's cycles differ by a step then
    for t in range(1, timeline.steps + 1):
        wanted = 0.1 / 2 * (math.cos(math.pi * ((t - 1) % length) / length) + 1)
        assert timeline.lr(t) == pytest.approx(wanted, abs=1e-12)


def test_each_cycle_ends_with_a_ticket() -> None:
    plan = Snapshot(tickets=5).plan(Setting(get_recipe("cifar"), epochs=10))
    (run,) = plan.runs
    assert plan.tickets == len(run.phases) == 5
    assert run.epochs == pytest.approx(10)
    assert all(phase.at_end == (Collect(),) for phase in run.phases)


@pytest.mark.parametrize("options", [{"tickets": 0}, {"budget": 0.0}])
def test_what_cannot_be_meant_is_one_line(options: dict[str, float]) -> None:
    with pytest.raises(FreeTicketsError, match=next(iter(options))):
        Snapshot(**options)  # type: ignore[arg-type]
