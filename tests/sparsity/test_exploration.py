"""What an exploration decides, apart from any network."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.errors import FreeTicketsError
from freetickets.kernels.layers import SparseLayer, SparseLinear
from freetickets.sparsity import Exploration, WeightView
from freetickets.sparsity.exploration import apportion, growth_counts
from freetickets.sparsity.weight import MaskedWeight

from .training import Run, built, generator, poured, properties

# ---- how many weights each layer grows


layers = st.lists(
    st.tuples(st.floats(0.01, 100), st.integers(0, 60)), min_size=1, max_size=6
).filter(lambda entries: any(capacity for _, capacity in entries))


@properties(200)
@given(layers, st.data())
def test_shares_are_whole_in_proportion_within_capacity_and_add_up(entries, data):
    wishes, capacities = [w for w, _ in entries], [c for _, c in entries]
    total = data.draw(st.integers(0, sum(capacities)))
    counts = apportion(total, wishes, capacities)
    assert sum(counts) == total
    exact = poured(total, wishes, capacities)
    for count, share, capacity in zip(counts, exact, capacities, strict=True):
        assert 0 <= count <= capacity
        assert abs(count - share) < 1 + 1e-6


def test_what_all_layers_lost_is_shared_out_also_if_nobody_wishes():
    assert apportion(6, [0.0, 0.0], [4, 8]) == [2, 4]
    assert apportion(9, [1.0, 0.0, 0.0], [4, 5, 5]) == [4, 3, 2]
    assert apportion(0, [0.0], [0]) == [0]
    both = [layer(15), layer(15)]
    assert growth_counts(both, [first(8), first(10)], None) == [7, 5]
    # Nothing would ever bring a layer back that has no weight at all.
    assert growth_counts(both, [first(0), first(15)], "survivors") == [1, 14]
    both[1] = layer(15, 3.0)
    assert growth_counts(both, [first(8), first(10)], "momentum") == [0, 12]
    with pytest.raises(FreeTicketsError, match=r"momentum of 'deep\.weight' is infinite"):
        growth_counts([layer(15, torch.inf)], [first(15)], "momentum")


def first(count):
    return torch.arange(40) < count


def layer(active, momentum=None):
    seen = None if momentum is None else torch.full((40,), momentum)
    return WeightView("deep.weight", torch.ones(40), first(active), None, seen, generator())


# ---- the gradients that it looks at


def recorded(run):
    """The number of dense gradients in memory."""
    state = run.sparsifier.state_dict()["gradients"]
    return len(state["gradients"]) + len(state["momentum"])


@pytest.mark.parametrize(
    ("backend", "kind", "method"),
    [
        ("auto", MaskedWeight, "take_gradient"),
        pytest.param("sparse", SparseLinear, "dense_gradient", marks=built),
    ],
)
@pytest.mark.parametrize(("batches", "steps"), [(1, {5, 10}), (2, {4, 5, 9, 10})])
def test_gradients_are_made_and_in_memory_only_around_an_exploration(
    backend, kind, method, batches, steps, monkeypatch
):
    schedule = Exploration(interval=5, stop=10)
    run = Run(gradient_batches=batches, exploration=schedule, backend=backend)
    made, make = [], getattr(kind, method)

    def noted(*arguments):
        made.append(run.sparsifier.steps + 1)
        return make(*arguments)

    monkeypatch.setattr(kind, method, noted)
    for step in range(1, 15):
        run.backward(step)
        run.optimizer.step()
        assert (recorded(run) > 0) == (step in steps)
        run.sparsifier.step()
        layers = [m for m in run.model.modules() if isinstance(m, SparseLayer)]
        assert all(layer.gradient is None for layer in layers)
    assert made == sorted(3 * [*steps])


@pytest.mark.parametrize("options", [{"exploration": None}, {"grow": "random"}])
def test_no_dense_gradient_is_kept_where_none_is_needed(options):
    run = Run(backend="auto", **options)
    for step in range(4):
        run.train([step])
        assert recorded(run) == 0
    before = run.digest
    if "grow" in options:  # and none is missed
        run.sparsifier.explore(0.5)
        assert run.digest != before


@pytest.mark.parametrize("grow", ["gradient", "momentum", {"gradient": 1, "random": 1}])
def test_exploring_before_any_gradient_is_refused(grow):
    with pytest.raises(FreeTicketsError, match="no dense gradient to grow by: call keep_gradients"):
        Run(grow=grow, exploration=None).sparsifier.explore(0.5)


def test_an_escape_may_follow_at_once_but_not_after_zeroed_gradients(refused):
    run = Run()
    assert run.train(range(2)) == [False, True]
    before = run.digest
    run.sparsifier.explore(0.8)
    assert run.digest != before
    run = Run(exploration=Exploration(interval=1), backend="auto")
    run.backward()
    run.optimizer.zero_grad()
    run.optimizer.step()
    refused("no dense gradient", run.sparsifier.step)
