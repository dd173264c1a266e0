"""What an exploration decides, apart from any network."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Exploration, WeightView
from freetickets.sparsity.exploration import Explorer, GradientRecord, apportion, growth_counts
from freetickets.sparsity.weight import MaskedWeight

from .training import Run, generator, properties


def view(weight, mask, momentum=None, name="fc.weight"):
    return WeightView(name, weight.double() * mask, mask, None, momentum, generator())


def random_view(seed, size=40, active=15, scale=1.0):
    source = generator(seed)
    mask = torch.zeros(size, dtype=torch.bool)
    mask[torch.randperm(size, generator=source)[:active]] = True
    return view(scale * torch.randn(size, generator=source), mask)


# ---- how many weights each layer grows


def poured(total, wishes, capacities):
    """The exact shares: a scale is sought at which the capped wishes add up to the total."""
    low, high = 0.0, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        spent = sum(min(c, middle * w) for w, c in zip(wishes, capacities, strict=True))
        low, high = (middle, high) if spent < total else (low, middle)
    return [min(c, high * w) for w, c in zip(wishes, capacities, strict=True)]


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


def test_nobody_wishes_and_all_is_given_away_all_the_same():
    assert apportion(6, [0.0, 0.0], [4, 8]) == [2, 4]
    assert apportion(9, [1.0, 0.0, 0.0], [4, 5, 5]) == [4, 3, 2]
    assert apportion(0, [0.0], [0]) == [0]


def test_a_layer_that_lost_all_gets_one_back_first():
    views = [random_view(0, scale=1e-6), random_view(1)]
    kept = [torch.zeros(40, dtype=torch.bool), views[1].mask]
    assert growth_counts(views, kept, "survivors") == [1, 14]


def test_a_layer_without_momentum_grows_nothing_where_others_have_some():
    momentum = torch.zeros(40)
    views = [random_view(0), random_view(1)]
    views[1] = view(views[1].weight, views[1].mask, momentum + 3)
    kept = [v.mask & (v.weight.abs() > 0.5) for v in views]
    lost = sum(int(v.mask.sum() - k.sum()) for v, k in zip(views, kept, strict=True))
    assert growth_counts(views, kept, "momentum") == [0, lost]


def test_infinite_momentum_is_refused_by_layer():
    momentum = torch.full((40,), torch.inf)
    seen = view(torch.ones(40), torch.ones(40, dtype=torch.bool), momentum, "deep.weight")
    with pytest.raises(FreeTicketsError, match=r"momentum of 'deep\.weight' is infinite"):
        growth_counts([seen], [seen.mask], "momentum")


# ---- DSR's threshold


def test_the_threshold_is_doubled_and_halved_until_it_prunes_about_the_rate():
    """As in DSR's algorithm: the threshold of today prunes, and is mended for tomorrow."""
    views = [random_view(seed, size=400, active=200) for seed in range(3)]
    explorer = Explorer("magnitude", "random", "threshold", None)
    threshold, rate, total = 1e-3, 0.3, 600
    pruned = []
    for _ in range(15):
        assert explorer.threshold == threshold
        kept, masks = explorer.explore(views, rate)
        for seen, stay, mask in zip(views, kept, masks, strict=True):
            expected = [bool(m) and abs(w) >= threshold for w, m in zip(seen.weight, seen.mask)]  # noqa: B905
            assert stay.tolist() == expected
            assert mask.sum() == seen.mask.sum()
        pruned.append(total - sum(int(stay.sum()) for stay in kept))
        if pruned[-1] < 0.9 * rate * total:
            threshold *= 2
        elif pruned[-1] > 1.1 * rate * total:
            threshold /= 2
    assert pruned[0] < 5
    assert 60 < pruned[-1] < 330  # a factor of two is as near as doubling gets


# ---- the gradients that it looks at


def weight_with(gradient=None):
    """A weight of two elements, and the gradient of the coming step."""
    weight = MaskedWeight("w", nn.Parameter(torch.zeros(2)), torch.ones(2, dtype=torch.bool))
    weight.parameter.grad = None if gradient is None else torch.tensor(gradient)
    return weight


def record_of(gradients, *, needs=("gradient",), window=1, wanted=True):
    record = GradientRecord(needs, window)
    for gradient in gradients:
        record.take([weight_with(gradient)], wanted)
        record.commit()
    return record


@pytest.mark.parametrize(
    ("gradients", "window", "expected"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], 1, [3, 4]),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]], 3, [3, 5]),
        ([[2.0, 4.0], None], 3, [1, 2]),  # a step without gradient counts as zero
        ([[1.0, 1.0]] * 3 + [[5.0, 5.0]], 3, [5, 5]),  # never more steps than asked for
    ],
)
def test_a_window_gives_the_mean_of_its_gradients(gradients, window, expected):
    assert record_of(gradients, window=window).of("w")[0].tolist() == expected


def test_what_nobody_wants_is_not_copied():
    for options, is_missing in (({"wanted": False}, True), ({"needs": ()}, False)):
        record = record_of([[1.0, 2.0]], **options)
        assert record.of("w") == (None, None)
        assert record.missing == is_missing


def test_an_unwanted_step_forgets_the_gradient_before_it():
    record = record_of([[1.0, 2.0]])
    assert not record.missing
    record.take([weight_with()], wanted=False)
    record.commit()
    assert record.missing


def test_what_is_dropped_leaves_no_trace():
    record = record_of([[1.0, 1.0]], needs=("gradient", "momentum"), window=4)
    record.keep = True
    record.take([weight_with([torch.inf, torch.nan])], wanted=True)
    record.taken = None
    gradient, momentum = record.of("w")
    assert gradient.tolist() == [1, 1]
    assert momentum.tolist() == pytest.approx([0.1, 0.1])
    # The wish to keep outlives the step that was not.
    record.take([weight_with([3.0, 5.0])], wanted=False)
    record.commit()
    assert record.of("w")[0].tolist() == [2, 3]


# ---- as the sparsifier uses it


def recorded(run):
    """The number of dense gradients in memory."""
    state = run.sparsifier.state_dict()["gradients"]
    return len(state["gradients"]) + len(state["momentum"])


@pytest.mark.parametrize("batches", [1, 2])
def test_dense_gradients_are_in_memory_only_around_an_exploration(batches):
    schedule = Exploration(interval=5, stop=10)
    run = Run(gradient_batches=batches, exploration=schedule, backend="auto")
    seen = []
    for step in range(14):
        run.backward(step)
        run.optimizer.step()
        seen.append(recorded(run) > 0)
        run.sparsifier.step()
    expected = {5, 10} if batches == 1 else {4, 5, 9, 10}
    assert seen == [step in expected for step in range(1, 15)]


def test_gradients_are_copied_only_for_the_step_that_needs_them(monkeypatch):
    run, copied, take = Run(exploration=Exploration(interval=3)), [], MaskedWeight.take_gradient

    def noted(weight):
        copied.append(run.sparsifier.steps + 1)
        return take(weight)

    monkeypatch.setattr(MaskedWeight, "take_gradient", noted)
    run.train(range(7))
    assert copied == [3, 3, 3, 6, 6, 6]


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


def test_an_escape_may_follow_an_exploration_at_the_same_step():
    run = Run()
    assert run.train(range(2)) == [False, True]
    before = run.digest
    run.sparsifier.explore(0.8)
    assert run.digest != before


def test_gradients_zeroed_before_the_step_are_noticed():
    run = Run(exploration=Exploration(interval=1), backend="auto")
    run.backward()
    run.optimizer.zero_grad()
    run.optimizer.step()
    with pytest.raises(FreeTicketsError, match="no dense gradient"):
        run.sparsifier.step()
