"""The methods as plans, and the errors of their options."""

import math
from dataclasses import dataclass, replace

import pytest

import freetickets as ft
from freetickets.methods import METHODS, RECIPES, Collect, Setting, get_method, get_recipe
from freetickets.methods.plan import ExplorationPlan, SparseOptions

SETTING = Setting(get_recipe("cifar"))


@pytest.mark.parametrize("tickets", [1, 2, 7])
def test_edst_is_one_run_with_one_escape_between_two_tickets(tickets):
    plan = ft.EDST(tickets=tickets).plan(SETTING)
    (run,) = plan.runs
    names = [event.event for phase in run.phases for event in phase.at_end]
    assert names == [*["collect", "escape"] * (tickets - 1), "collect"]
    assert (run.phases[0].name, plan.tickets) == ("explore", tickets)
    assert run.epochs == 150 + 100 * tickets
    (run,) = ft.EDST(tickets=tickets, refinement=0.5).plan(SETTING).runs
    assert [phase.epochs for phase in run.phases] == pytest.approx([150, *[50] * tickets])


def test_static_is_dst_without_exploration_and_dense_methods_have_no_sparsity():
    setting = Setting(get_recipe("cifar"), seed=17)
    static, dst = ft.Static().plan(setting), ft.DST().plan(setting)
    assert [run.seed for run in dst.runs] == [17, 18, 19]
    for still, moving in zip(static.runs, dst.runs, strict=True):
        (phase,) = moving.phases
        assert phase.exploration is not None
        assert still == replace(moving, phases=(replace(phase, exploration=None),))
    assert len(ft.Dense().plan(SETTING).runs) == 1
    plan = ft.DenseEnsemble().plan(SETTING)
    assert [run.seed for run in plan.runs] == [0, 1, 2, 3]
    assert all(phase.sparsity == 0 for run in plan.runs for phase in run.phases)


def test_presets_recipes_and_options_reach_the_plan():
    for preset, select, settle in (("paper", "best", False), ("robust", "last", True)):
        (run,) = ft.EDST().plan(Setting(get_recipe("cifar"), preset=preset)).runs
        assert run.phases[1].at_end[0] == Collect(select)
        assert run.phases[0].exploration == ExplorationPlan(0.5, 1000, "constant", 0.0, settle)
    plan = ft.EDST().plan(Setting(get_recipe("imagenet")))
    assert plan.runs[0].phases[0].exploration == ExplorationPlan(0.5, 4000, "cosine", 0.005)
    assert plan.sparse.regrown_value == "keep"
    method = ft.EDST(grow="random", distribution="uniform", exclude=("fc",), rate=0.3, interval=7)
    plan = method.plan(SETTING)
    assert plan.sparse == SparseOptions("uniform", grow="random", exclude=("fc",))
    assert plan.runs[0].phases[0].exploration == ExplorationPlan(0.3, 7)


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_method_has_a_plan_for_every_recipe(kind, recipe):
    method = kind()
    assert all((kind.name, kind.summary, kind.paper))
    for epochs in (None, 1.0, 7):
        plan = method.plan(Setting(recipe, epochs=epochs))
        assert plan.method == kind.name
        assert plan.tickets >= 1
        if epochs is not None:
            assert plan.runs[0].epochs == pytest.approx(epochs)


# What each method refuses by the option's name: at the edges of its range.
IMPOSSIBLE = {
    "edst": [
        *[({"sparsity": value}, "lie between 0 and 1") for value in (0.0, 1.0)],
        ({"sparsity": math.nan}, "be a finite number"),
        *[({"escape_rate": value}, "") for value in (-0.1, 1.1)],
        *[({name: 0.0}, "be positive") for name in ("refinement", "refinement_height")],
        ({"tickets": 0}, "be at least 1, not 0"),
        ({"tickets": "three"}, "be a whole number"),
    ],
    "dst": [({"rate": 1.5}, ""), ({"interval": 0}, "be at least 1 step")],
    "ltr": [
        *[({"rewind": value}, "lie between 0 and 1") for value in (0.0, 1.0)],
        *[({name: value}, "") for name, value in {"sparsity": 1.0, "interval": 0}.items()],
        ({"prune_from": 1.0}, "lie below prune_until"),
    ],
    "dense": [({"tickets": 0}, "")],
    "snapshot": [({"tickets": 0}, ""), ({"budget": 0.0}, "be positive")],
    "fge": [({"pretraining": 1.0}, ""), ({"budget": -1.0}, ""), ({"low": 0.6}, "be below high")],
    "pf": [({"sparsity": 0.0}, ""), ({"finetune": 0.0}, ""), ({"finetune_lr": 0.0}, "")],
    "mc-dropout": [({"passes": 0}, ""), ({"dropout": 0.0}, ""), ({"dropout": 1.0}, "")],
    "mimo": [({"members": 0}, ""), ({"batch_repetition": 0}, ""), ({"input_repetition": 1.5}, "")],
    "batch-ensemble": [({"members": 0}, ""), ({"examples": "tield"}, "be 'tiled' or 'split'")],
    "treenet": [({"members": 0}, ""), ({"shared": -1}, "be 0 or more stages")],
    "neurotrails": [({"members": 0}, ""), ({"shared": -1}, "be 0 or more"), ({"tickets": 0}, "")],
    "sup-tickets": [
        *[({name: 0}, "be at least 1") for name in ("cycles", "norm_batches")],
        *[({"cycling": value}, "lie between 0 and 1") for value in (0.0, 1.0)],
        *[({"cycle_rate": 2.0}, ""), ({"low": 0.1}, "be positive and at most high")],
    ],
}


@pytest.mark.parametrize("method", IMPOSSIBLE)
def test_an_impossible_option_is_refused_by_its_name(refused, method):
    for options, words in IMPOSSIBLE[method]:
        (name,) = options
        refused(f"^{name} must {words}", get_method(method), **options)


def test_a_range_has_ends_also_in_a_subclass_and_nonsense_is_refused(refused):
    @dataclass(frozen=True)
    class Own(ft.DST):
        tickets: int = 1
        later: "Unheard" = None  # type: ignore[name-defined]  # noqa: F821

    assert Own(later=3).tickets == 1
    assert ft.EDST(escape_rate=0.0, rate=1.0, interval=1).rate == 1
    assert ft.TreeNet(shared=0).shared == 0
    assert ft.SupTickets(low=0.05).low == ft.SupTickets().high
    refused("tickets must be at least 1", Own, tickets=0)
    for make, words in (
        (lambda: ft.LTR(prune_until=1.5), "prune_until, both within 0 to 1"),
        (lambda: ft.LTR(criterion="snip"), "leave criterion out"),
        (lambda: ft.SupTickets(structure="2:4"), "leave --structure out"),
        (lambda: Setting(get_recipe("cifar"), preset="papers"), "preset must be"),
        (lambda: Setting(get_recipe("cifar"), epochs=0), "epochs must be positive"),
        (lambda: get_recipe("cifra"), "did you mean 'cifar'"),
        (lambda: get_method("esdt"), "did you mean 'edst'"),
    ):
        refused(words, make)
