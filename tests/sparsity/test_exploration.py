"""What an exploration decides, apart from any network."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import WeightView
from freetickets.sparsity.exploration import Explorer, apportion, growth_counts

from .training import generator, properties


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
