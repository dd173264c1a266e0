"""A training explores at least ten times, if it has the steps; long ones keep the recipe's ΔT."""

import pytest

from freetickets.experiments.grid import find_grid, grid_names
from freetickets.experiments.runner import Runner
from freetickets.experiments.scales import SCALES
from freetickets.experiments.substitutes import outline
from freetickets.methods import DST, EDST, LTR, Plan, Setting, Static, get_recipe
from freetickets.methods.interval import fewest_explorations, suit_interval
from freetickets.methods.method import Method
from freetickets.training.job import Job


def plan(method: Method, recipe: str = "small", **setting: object) -> Plan:
    return method.plan(Setting(get_recipe(recipe), **setting))


def interval(suited: Plan) -> int:
    exploration = suited.runs[0].phases[0].exploration
    assert exploration is not None
    return exploration.interval


@pytest.mark.parametrize("method", [DST(), EDST(), EDST(tickets=7), DST(explorer="granet")])
@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("steps_per_epoch", [2, 7, 40, 141])
def test_a_short_training_explores_at_least_ten_times_and_no_more_often_than_it_must(
    method: Method, preset: str, steps_per_epoch: int
) -> None:
    before = plan(method, preset=preset)
    suited = suit_interval(before, steps_per_epoch)
    count = fewest_explorations(suited, steps_per_epoch)
    assert count is not None
    assert count >= 10
    if interval(suited) < 280:
        assert (fewest_explorations(before, steps_per_epoch) or 0) < 10
        assert count < 20


@pytest.mark.parametrize(
    ("recipe", "steps_per_epoch"), [("cifar", 352), ("imagenet", 9810), ("small", 1000)]
)
def test_a_long_training_keeps_the_interval_of_its_recipe(
    recipe: str, steps_per_epoch: int
) -> None:
    for method in (DST(), EDST()):
        assert suit_interval(plan(method, recipe), steps_per_epoch) == plan(method, recipe)


def test_a_training_of_a_few_steps_explores_after_each() -> None:
    suited = suit_interval(plan(DST(), epochs=5), 1)
    assert interval(suited) == 1
    assert fewest_explorations(suited, 1) == 4  # the last one would come too late


def test_a_phase_without_a_step_is_left_to_those_who_refuse_it() -> None:
    assert suit_interval(plan(EDST(), epochs=0.1), 1) == plan(EDST(), epochs=0.1)


def test_gradual_pruning_keeps_step_with_the_explorations_that_follow_it() -> None:
    phase = suit_interval(plan(DST(explorer="granet")), 7).runs[0].phases[0]
    assert phase.exploration is not None
    assert phase.pruning is not None
    assert phase.exploration.interval == phase.pruning.interval == 12


@pytest.mark.parametrize("method", [Static(), LTR(), DST(rate=0.0), DST(explorer="gmp")])
def test_what_does_not_explore_is_left_alone(method: Method) -> None:
    assert suit_interval(plan(method), 7) == plan(method)
    assert fewest_explorations(plan(method), 7) is None


@pytest.mark.parametrize("scale", [*SCALES, *grid_names()])
def test_no_experiment_of_any_scale_is_changed(scale: str) -> None:
    """Records that exist were trained by these plans."""
    grid = find_grid(scale)
    runner = Runner(grid.scale, "nowhere", "nowhere")
    for task in grid.tasks(grid.choose(["all"]), 1, []):
        config, spec = runner.config(task), outline(runner.substitute(task).data, "nowhere")
        job = Job(config, spec, lambda: pytest.fail("a plan needs no data"))
        assert job.plan == config.make_method().plan(config.setting()), task.name
