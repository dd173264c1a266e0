"""Fast geometric ensembling against the formula of its paper."""

import pytest

from freetickets.errors import FreeTicketsError
from freetickets.methods import FGE, Collect, Setting, Timeline, get_recipe


def test_the_rate_is_that_of_the_paper() -> None:
    # 200 epochs, 160 of them pretraining: 9 half cycles in 40 epochs of 45 steps.
    plan = FGE(tickets=5).plan(Setting(get_recipe("cifar")))
    timeline = Timeline(plan.runs[0], steps_per_epoch=45)
    pretraining, cycle = 160 * 45, 2 * 200
    high, low = 0.05, 0.0005
    for i in range(1, 9 * 200 + 1):
        t = ((i - 1) % cycle + 1) / cycle
        falling = (1 - 2 * t) * high + 2 * t * low
        rising = (2 - 2 * t) * low + (2 * t - 1) * high
        wanted = falling if t <= 0.5 else rising
        assert timeline.lr(pretraining + i) == pytest.approx(wanted, abs=1e-12)
    # The standard schedule, up to the moment where it is left.
    assert timeline.lr(1) == timeline.lr(100 * 45) == 0.1
    assert timeline.lr(140 * 45 + 1) == pytest.approx((0.1 + 0.001) / 2)


def test_tickets_are_taken_where_the_rate_is_lowest() -> None:
    plan = FGE(tickets=3).plan(Setting(get_recipe("small"), epochs=30))
    timeline = Timeline(plan.runs[0], steps_per_epoch=100)
    collected = [s.end for s in timeline.spans if s.phase.at_end == (Collect(),)]
    assert len(collected) == plan.tickets == 3
    assert collected[-1] == timeline.steps == 3000
    for step in collected:
        assert timeline.lr(step) == pytest.approx(0.005 * 0.05)
        assert timeline.lr(step) < timeline.lr(step - 1)


@pytest.mark.parametrize("pretraining", [0.3, 0.5, 0.8, 0.95])
def test_any_share_may_be_pretraining(pretraining: float) -> None:
    plan = FGE(pretraining=pretraining).plan(Setting(get_recipe("cifar")))
    assert plan.runs[0].epochs == pytest.approx(200)
    assert plan.runs[0].phases[0].epochs == pytest.approx(200 * pretraining)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"tickets": 0}, "tickets"),
        ({"budget": -1.0}, "budget"),
        ({"pretraining": 1.0}, "pretraining"),
        ({"low": 0.6}, "low"),
    ],
)
def test_what_cannot_be_meant_is_one_line(options: dict[str, float], word: str) -> None:
    with pytest.raises(FreeTicketsError, match=word):
        FGE(**options)  # type: ignore[arg-type]
