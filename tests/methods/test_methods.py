"""The methods as plans, and the errors of their options."""

import pytest

from freetickets.errors import FreeTicketsError
from freetickets.methods import (
    DST,
    EDST,
    METHODS,
    RECIPES,
    Collect,
    Dense,
    DenseEnsemble,
    Escape,
    Method,
    Setting,
    Static,
    get_method,
    get_recipe,
)

SETTING = Setting(get_recipe("cifar"))


@pytest.mark.parametrize("tickets", [1, 2, 3, 7, 12])
def test_edst_is_one_run_with_one_escape_between_two_tickets(tickets: int) -> None:
    plan = EDST(tickets=tickets).plan(SETTING)
    (run,) = plan.runs
    assert run.phases[0].name == "explore"
    events = [event for phase in run.phases for event in phase.at_end]
    assert sum(isinstance(event, Collect) for event in events) == tickets == plan.tickets
    assert sum(isinstance(event, Escape) for event in events) == tickets - 1
    assert not any(isinstance(event, Escape) for event in run.phases[-1].at_end)
    assert run.epochs == 150 + 100 * tickets


def test_static_is_dst_without_exploration() -> None:
    static, dst = Static().plan(SETTING), DST().plan(SETTING)
    for still, moving in zip(static.runs, dst.runs, strict=True):
        assert still.seed == moving.seed
        (a,), (b,) = still.phases, moving.phases
        assert (a.schedule, a.sparsity, a.at_end) == (b.schedule, b.sparsity, b.at_end)
        assert a.exploration is None
        assert b.exploration is not None


def test_dense_methods_have_no_sparsity() -> None:
    assert len(Dense().plan(SETTING).runs) == 1
    plan = DenseEnsemble().plan(SETTING)
    assert len(plan.runs) == 4
    assert len({run.seed for run in plan.runs}) == 4
    assert all(phase.sparsity == 0 for run in plan.runs for phase in run.phases)


def test_seeds_of_the_runs_count_up_from_the_given_one() -> None:
    setting = Setting(get_recipe("cifar"), seed=17)
    assert [run.seed for run in DST(tickets=3).plan(setting).runs] == [17, 18, 19]


def test_the_paper_preset_collects_the_best_and_explores_to_the_end() -> None:
    for preset, select, settle in (("paper", "best", False), ("robust", "last", True)):
        (run,) = EDST().plan(Setting(get_recipe("cifar"), preset=preset)).runs
        assert run.phases[1].at_end[0] == Collect(select)
        exploration = run.phases[0].exploration
        assert exploration is not None
        assert exploration.settle is settle
        assert (exploration.schedule, exploration.rate) == ("constant", 0.5)


def test_imagenet_anneals_the_rate_and_keeps_regrown_values() -> None:
    plan = EDST().plan(Setting(get_recipe("imagenet")))
    exploration = plan.runs[0].phases[0].exploration
    assert exploration is not None
    assert (exploration.schedule, exploration.final_rate, exploration.interval) == (
        "cosine",
        0.005,
        4000,
    )
    assert plan.sparse.regrown_value == "keep"
    assert EDST().plan(SETTING).sparse.regrown_value == "zero"


def test_options_reach_the_plan() -> None:
    method = EDST(grow="random", distribution="uniform", exclude=("fc",), rate=0.3, interval=7)
    plan = method.plan(SETTING)
    assert (plan.sparse.grow, plan.sparse.distribution) == ("random", "uniform")
    assert plan.sparse.exclude == ("fc",)
    exploration = plan.runs[0].phases[0].exploration
    assert exploration is not None
    assert (exploration.rate, exploration.interval) == (0.3, 7)


@pytest.mark.parametrize("kind", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_method_has_a_plan_for_every_recipe(kind: type[Method], recipe: object) -> None:
    method = kind()
    assert all((kind.name, kind.summary, kind.paper))
    for epochs in (None, 1.0, 7):
        plan = method.plan(Setting(recipe, epochs=epochs))  # type: ignore[arg-type]
        assert plan.method == kind.name
        assert plan.tickets >= 1
        if epochs is not None:
            assert plan.runs[0].epochs == pytest.approx(epochs)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EDST(tickets=0), "tickets"),
        (lambda: Dense(tickets=0), "tickets"),
        (lambda: EDST(sparsity=1.0), "sparsity"),
        (lambda: EDST(sparsity=0.0), "sparsity"),
        (lambda: DST(rate=1.5), "rate"),
        (lambda: EDST(escape_rate=-0.1), "escape_rate"),
        (lambda: EDST(refinement=0.0), "refinement"),
        (lambda: DST(interval=0), "interval"),
        (lambda: Setting(get_recipe("cifar"), preset="papers"), "preset"),
        (lambda: Setting(get_recipe("cifar"), epochs=0), "epochs"),
        (lambda: get_recipe("cifra"), "did you mean 'cifar'"),
        (lambda: get_method("esdt"), "did you mean 'edst'"),
    ],
)
def test_an_impossible_option_is_refused_by_its_name(make: object, words: str) -> None:
    with pytest.raises(FreeTicketsError, match=words):
        make()  # type: ignore[operator]


def test_a_refinement_is_as_long_as_it_is_asked_for() -> None:
    (usual,), (half,) = (
        EDST(tickets=3, refinement=share).plan(SETTING).runs for share in (1.0, 0.5)
    )
    assert [phase.epochs for phase in usual.phases] == pytest.approx([150, 100, 100, 100])
    assert [phase.epochs for phase in half.phases] == pytest.approx([150, 50, 50, 50])
