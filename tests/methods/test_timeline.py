"""The traces of EDST and DST, step by step, against what the authors' code does.

The expectations are written from the description of the released code (it counts epochs from 1 on
CIFAR and from 0 on ImageNet), not with the classes under test.
"""

import math

import pytest

import freetickets as ft
from freetickets.experiments.grid import find_grid, grid_names
from freetickets.experiments.runner import Runner
from freetickets.experiments.scales import SCALES
from freetickets.experiments.substitutes import outline
from freetickets.methods import Setting, Timeline, get_recipe
from freetickets.methods.events import Collect, Escape
from freetickets.methods.plan import Phase, PruningPlan, Run, Stretch
from freetickets.methods.timeline import fewest_explorations, suit_interval
from freetickets.training.job import Job

CIFAR_STEPS = 352  # 45,000 images in batches of 128
IMAGENET_STEPS = 1000  # a tenth of the real number: the trace is by epoch


def cifar_edst_lr(epoch):
    """1-based: 150 epochs at .1, then 50 at .01 and 50 at .001 for each ticket."""
    if epoch <= 150:
        return 0.1
    return 0.01 if (epoch - 151) % 100 < 50 else 0.001


def imagenet_edst_lr(epoch):
    """0-based: five stairs, .1 up to 30, then 30 at .01, 30 at .001, 10 at .0001 a ticket."""
    if epoch < 5:
        return 0.1 * (epoch + 1) / 6
    if epoch < 30:
        return 0.1
    within = (epoch - 30) % 70
    return 0.01 if within < 30 else 0.001 if within < 60 else 0.0001


def plan_of(method, recipe="small", **setting):
    return method.plan(Setting(get_recipe(recipe), **setting))


def edst(recipe, tickets, sparsity=0.8, preset="paper"):
    (run,) = plan_of(ft.EDST(tickets=tickets, sparsity=sparsity), recipe, preset=preset).runs
    return run


def ends_of(timeline, kind):
    return [s.end for s in timeline.spans if any(isinstance(e, kind) for e in s.phase.at_end)]


def rates(run, steps_per_epoch):
    timeline = Timeline(run, steps_per_epoch)
    return [timeline.lr(step) for step in range(1, timeline.steps + 1)]


@pytest.mark.parametrize(
    ("tickets", "sparsity", "epochs", "gaps"),
    [(3, 0.8, 450, [0, 200, 400]), (7, 0.9, 850, [0, 200, 400, 600, 800, 0, 200])],
)
def test_cifar_edst_trace_equals_the_authors_step_by_step(tickets, sparsity, epochs, gaps):
    timeline = Timeline(edst("cifar", tickets, sparsity), CIFAR_STEPS)
    assert timeline.steps == epochs * CIFAR_STEPS
    for step in range(1, timeline.steps + 1):
        epoch = (step - 1) // CIFAR_STEPS + 1
        assert timeline.lr(step) == pytest.approx(cifar_edst_lr(epoch), rel=1e-12)
        assert timeline.exploration_rate(step) == (0.5 if step % 1000 == 0 else 0.0)
    collections = ends_of(timeline, Collect)
    assert collections == [(250 + 100 * i) * CIFAR_STEPS for i in range(tickets)]
    assert ends_of(timeline, Escape) == collections[:-1]
    assert [end % 1000 for end in collections] == gaps


@pytest.mark.parametrize(("tickets", "epochs"), [(2, 170), (4, 310)])
def test_imagenet_edst_trace_equals_the_authors_step_by_step(tickets, epochs):
    timeline = Timeline(edst("imagenet", tickets), IMAGENET_STEPS)
    assert timeline.steps == epochs * IMAGENET_STEPS
    restart, length = 0, 100 * IMAGENET_STEPS
    for epoch in range(epochs):
        for part in (1, IMAGENET_STEPS // 2, IMAGENET_STEPS):
            rate = timeline.lr(epoch * IMAGENET_STEPS + part)
            assert rate == pytest.approx(imagenet_edst_lr(epoch), rel=1e-12)
        if epoch >= 100 and (epoch - 100) % 70 == 0:  # the authors escape as this epoch starts
            restart, length = epoch * IMAGENET_STEPS, 70 * IMAGENET_STEPS
        for step in range(epoch * IMAGENET_STEPS + 1, (epoch + 1) * IMAGENET_STEPS + 1):
            progress = (step - restart) / length
            expected = 0.005 + 0.495 * (1 + math.cos(math.pi * progress)) / 2
            expected = 0.0 if step % 4000 else pytest.approx(expected, rel=1e-9)
            assert timeline.exploration_rate(step) == expected
    ends = [(100 + 70 * i) * IMAGENET_STEPS for i in range(tickets)]
    assert (ends_of(timeline, Collect), ends_of(timeline, Escape)) == (ends, ends[:-1])


def test_dst_decays_after_the_authors_epochs():
    plan = plan_of(ft.DST(), "cifar", preset="paper")
    assert [run.seed for run in plan.runs] == [0, 1, 2]
    levels = [0.1] * 125 + [0.01] * 62 + [0.001] * 63
    assert rates(plan.runs[0], 3) == pytest.approx([rate for rate in levels for _ in range(3)])
    timeline = Timeline(plan.runs[0], CIFAR_STEPS)
    assert timeline.steps == 88_000
    assert timeline.explorations(timeline.spans[0]) == 88
    assert timeline.exploration_rate(88_000) == 0.5  # on the very last step, as the authors do
    stairs = [0.1 * (epoch + 1) / 6 for epoch in range(5)]
    levels = [*stairs, *[0.1] * 55, *[0.01] * 60, *[0.001] * 60, *[0.0001] * 20]
    imagenet = plan_of(ft.DST(tickets=2), "imagenet").runs[0]
    assert rates(imagenet, 2) == pytest.approx([rate for rate in levels for _ in range(2)])


@pytest.mark.parametrize("tickets", [1, 3, 7])
def test_robust_never_explores_within_an_interval_of_a_collection(tickets):
    paper = Timeline(edst("cifar", tickets), CIFAR_STEPS)
    robust = Timeline(edst("cifar", tickets, preset="robust"), CIFAR_STEPS)
    collections = ends_of(robust, Collect)
    for step in range(1000, robust.steps + 1, 1000):
        allowed = next(c for c in collections if c >= step) - step >= 1000
        assert robust.exploration_rate(step) == (paper.exploration_rate(step) if allowed else 0.0)
    for span in robust.spans:
        steps = range(span.start + 1, span.end + 1)
        assert robust.explorations(span) == sum(robust.exploration_rate(s) > 0 for s in steps)


@pytest.mark.parametrize(("epochs", "steps_per_epoch"), [(20, 7), (1, 10), (36.5, 141)])
def test_a_shorter_run_keeps_the_papers_proportions(epochs, steps_per_epoch):
    plan = plan_of(ft.EDST(tickets=3), "cifar", epochs=epochs)
    (run,) = plan.runs
    assert run.epochs == pytest.approx(epochs)
    assert plan.dense_epochs == pytest.approx(epochs * 250 / 450)
    timeline = Timeline(run, steps_per_epoch)
    assert abs(timeline.steps - epochs * steps_per_epoch) < 1
    ends = [span.end for span in timeline.spans]
    assert [span.start for span in timeline.spans] == [0, *ends[:-1]]
    for end, share in zip(ends, (150, 250, 350, 450), strict=True):
        assert abs(end - timeline.steps * share / 450) <= 1


def test_granet_explores_at_each_pruning_and_a_late_one_still_begins_before_the_end():
    (run,) = plan_of(ft.DST(tickets=1, explorer="granet"), "cifar").runs
    timeline = Timeline(run, CIFAR_STEPS)
    steps = range(1, timeline.steps + 1)
    prunings = [step for step in steps if timeline.sparsity(step) is not None]
    assert prunings == list(range(1000, 66_001, 1000))  # to three quarters of 88,000 steps
    assert all(timeline.exploration_rate(step) > 0 for step in prunings)
    phase = Phase("prune", (Stretch(1, 0.1),), 0.8, pruning=PruningPlan(begin=0.9, interval=1))
    timeline = Timeline(Run(0, (Phase("begin", (Stretch(1, 0.1),)), phase)), 2)
    assert [timeline.sparsity(step) for step in (1, 2, 3, 4)] == [None, None, 0.0, 0.8]


def straight(start, end, steps):
    """Rates that would reach the end one step after the last."""
    return [start + (end - start) * step / steps for step in range(steps)]


@pytest.mark.parametrize("method", [ft.Dense(), ft.DST(), ft.Static(), ft.MIMO(), ft.TreeNet()])
def test_the_fast_recipe_trains_in_one_cycle_of_ten_epochs(method):
    cycle = [*straight(0.04, 0.2, 2 * 391), *straight(0.2, 0.0, 8 * 391)]
    assert rates(plan_of(method, "fast").runs[-1], 391) == pytest.approx(cycle, rel=1e-9)


@pytest.mark.parametrize("height", [None, 0.5, 1.0])
def test_the_fast_recipe_gives_each_refinement_a_cycle_of_its_own(height):
    plan = plan_of(ft.EDST(tickets=3, refinement_height=height), "fast", epochs=115.2, lr=0.2)
    unit = 64 * 40  # steps of a dense training as long as this one
    expected = [*straight(0.04, 0.2, unit // 5), *[0.2] * (2 * unit // 5)]
    expected += straight(0.2 * (height or 1.0), 0.0, 2 * unit // 5) * 3
    assert plan.dense_epochs == pytest.approx(64)
    assert len(expected) == 1.8 * unit
    assert rates(plan.runs[0], 40) == pytest.approx(expected, rel=1e-9)


def test_a_refinement_can_begin_higher_and_rewinding_goes_back_into_the_warm_up():
    (run,) = plan_of(ft.EDST(tickets=1, refinement_height=0.3), "cifar").runs
    assert rates(run, 1) == pytest.approx([0.1] * 150 + [0.03] * 50 + [0.003] * 50)
    search, *retrainings = plan_of(ft.LTR(tickets=2), "fast").runs
    whole = rates(plan_of(ft.Dense(), "fast").runs[0], 400)
    assert rates(search, 400) == pytest.approx(whole, rel=1e-9)
    for run in retrainings:
        assert rates(run, 400) == pytest.approx(whole[200:], rel=1e-9)


# ---- a training explores at least ten times, if it has the steps; long ones keep their interval


EXPLORING = ft.DST(), ft.EDST()
GRANET, GMP = ft.DST(explorer="granet"), ft.DST(explorer="gmp")


def interval(suited):
    return suited.runs[0].phases[0].exploration.interval


@pytest.mark.parametrize(
    "method", [ft.DST(), ft.EDST(), ft.EDST(tickets=7), ft.DST(explorer="granet")]
)
@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("steps_per_epoch", [2, 7, 40, 141])
def test_a_short_training_explores_ten_times_and_hardly_more(method, preset, steps_per_epoch):
    before = plan_of(method, preset=preset)
    suited = suit_interval(before, steps_per_epoch)
    count = fewest_explorations(suited, steps_per_epoch)
    assert count >= 10
    if interval(suited) < 280:
        assert (fewest_explorations(before, steps_per_epoch) or 0) < 10
        assert count < 20


@pytest.mark.parametrize(
    ("method", "recipe", "steps_per_epoch"),
    [
        *[(method, "cifar", 352) for method in (ft.DST(), ft.EDST())],
        *[(method, "imagenet", 9810) for method in (ft.DST(), ft.EDST())],
        *[(method, "small", 1000) for method in (ft.DST(), ft.EDST())],
        *[
            (method, "small", 7)
            for method in (ft.Static(), ft.LTR(), ft.DST(rate=0.0), ft.DST(explorer="gmp"))
        ],
    ],
)
def test_long_trainings_and_unexploring_ones_keep_the_interval(method, recipe, steps_per_epoch):
    plan = plan_of(method, recipe)
    assert suit_interval(plan, steps_per_epoch) == plan
    assert (fewest_explorations(plan, steps_per_epoch) is None) == (steps_per_epoch == 7)


def test_a_training_of_a_few_steps_explores_after_each():
    suited = suit_interval(plan_of(ft.DST(), epochs=5), 1)
    assert interval(suited) == 1
    phase = suit_interval(plan_of(GRANET), 7).runs[0].phases[0]
    assert phase.exploration.interval == phase.pruning.interval == 12
    assert fewest_explorations(suited, 1) == 4  # the last one would come too late
    # A phase without a step is left to those who refuse it.
    assert suit_interval(plan_of(ft.EDST(), epochs=0.1), 1) == plan_of(ft.EDST(), epochs=0.1)


@pytest.mark.parametrize("scale", [*SCALES, *grid_names()])
def test_no_experiment_of_any_scale_is_changed(scale):
    """Records that exist were trained by these plans."""
    grid = find_grid(scale)
    runner = Runner(grid.scale, "nowhere", "nowhere")
    for task in grid.tasks(grid.choose(["all"]), 1, []):
        config, spec = runner.config(task), outline(runner.substitute(task).data, "nowhere")
        job = Job(config, spec, lambda: pytest.fail("a plan needs no data"))
        assert job.plan == config.make_method().plan(config.setting()), task.name
