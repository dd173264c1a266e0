"""Explorations: against plain Python loops, and whatever the gradients are.

The tests set dense gradients themselves, so all weights are masked here; `test_backend.py` has
sparse layers explore like masked weights.
"""

import math

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Exploration, Score, Sparsifier


class Bag(nn.Module):
    """Layers without a forward pass: the tests set the gradients themselves."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.a = nn.Linear(10, 12, bias=False, dtype=dtype)
        self.b = nn.Conv2d(8, 6, 3, bias=False, dtype=dtype)
        self.c = nn.Linear(7, 9, bias=False, dtype=dtype)


def prepared(seed=0, **options):
    torch.manual_seed(seed)
    bag = Bag()
    optimizer = torch.optim.SGD(bag.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    defaults = {"exploration": Exploration(0.3, interval=1), "distribution": "uniform"}
    options = {**defaults, "backend": "masked"} | options
    return bag, optimizer, Sparsifier(bag, optimizer, 0.7, **options)


def set_gradients(bag):
    """Random gradients; returns copies, because the sparsifier masks the originals."""
    for parameter in bag.parameters():
        parameter.grad = torch.randn_like(parameter)
    return {name: parameter.grad.clone() for name, parameter in bag.named_parameters()}


def snapshot(bag):
    return {name: parameter.detach().clone() for name, parameter in bag.named_parameters()}


def flat(tensors):
    return {name: tensor.flatten().tolist() for name, tensor in tensors.items()}


def best(scores, count, candidates):
    """The `count` candidates of the highest score, one by one."""
    left, chosen = set(candidates), set()
    for _ in range(count):
        winner = None
        for index in left:
            if winner is None or scores[index] > scores[winner]:
                winner = index
        left.remove(winner)
        chosen.add(winner)
    return chosen


def survivors(weights, masks, rate, scope="layer", keep=abs):
    """Which active weights stay, in plain Python."""
    active = {n: [i for i, on in enumerate(mask) if on] for n, mask in masks.items()}
    if scope == "layer":
        return {
            name: best(
                [keep(w) for w in weights[name]],
                len(active[name]) - math.ceil(rate * len(active[name])),
                active[name],
            )
            for name in weights
        }
    everywhere = {(n, i): keep(weights[n][i]) for n in weights for i in active[n]}
    count = len(everywhere) - math.ceil(rate * len(everywhere))
    kept = best(everywhere, count, everywhere)
    return {name: {i for n, i in kept if n == name} for name in weights}


def check(sparsifier, bag, before, kept, growth_scores, regrown_value="zero"):
    """Compares an exploration with the brute-force one; growth by the given scores."""
    weights, masks = before
    for name, mask in flat(sparsifier.topology).items():
        short = name.removesuffix(".weight")
        count = sum(masks[name]) - len(kept[name])
        candidates = [i for i in range(len(mask)) if i not in kept[name]]
        grown = best(growth_scores[name], count, candidates)
        assert {i for i, on in enumerate(mask) if on} == kept[name] | grown, short
        values = bag.get_parameter(name).flatten().tolist()
        state = sparsifier.optimizer.state[bag.get_parameter(name)]["momentum_buffer"]
        for i, (value, moment) in enumerate(zip(values, state.flatten().tolist(), strict=True)):
            if i in kept[name]:
                assert value == weights[name][i]
                assert moment != 0
            else:
                regrown = regrown_value == "keep" and i in grown and masks[name][i]
                assert value == (weights[name][i] if regrown else 0), short
                assert moment == 0, short


@pytest.mark.parametrize("regrown_value", ["zero", "keep"])
@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 0.8, 1.0])
def test_exploration_equals_the_brute_force_one(scope, rate, regrown_value):
    bag, optimizer, sparsifier = prepared(
        exploration=Exploration(rate, interval=2), prune_scope=scope, regrown_value=regrown_value
    )
    regrown = 0
    for step in range(1, 9):
        gradients = flat(set_gradients(bag))
        optimizer.step()
        before = flat(snapshot(bag)), flat(sparsifier.topology)
        kept = survivors(*before, rate, scope)
        assert sparsifier.step() == (step % 2 == 0)
        if step % 2:
            assert flat(sparsifier.topology) == before[1]
            continue
        by_gradient = {name: [abs(g) for g in values] for name, values in gradients.items()}
        check(sparsifier, bag, before, kept, by_gradient, regrown_value)
        for name, mask in flat(sparsifier.topology).items():
            pruned = {i for i, on in enumerate(before[1][name]) if on} - kept[name]
            regrown += sum(mask[i] for i in pruned)
    assert rate < 0.3 or regrown  # weights pruned a moment ago were eligible


def test_momentum_growth_looks_at_the_running_mean_of_all_dense_gradients():
    bag, optimizer, sparsifier = prepared(grow="momentum", exploration=Exploration(interval=4))
    mean = {name: [0.0] * parameter.numel() for name, parameter in bag.named_parameters()}
    for _ in range(12):
        for name, values in flat(set_gradients(bag)).items():
            mean[name] = [0.9 * m + 0.1 * g for m, g in zip(mean[name], values, strict=True)]
        optimizer.step()
        before = flat(snapshot(bag)), flat(sparsifier.topology)
        if sparsifier.step():
            scores = {name: [abs(m) for m in values] for name, values in mean.items()}
            check(sparsifier, bag, before, survivors(*before, 0.5), scores)


@pytest.mark.parametrize("batches", [2, 3, 5])
def test_growth_looks_at_the_mean_of_the_last_gradients_only(batches):
    bag, optimizer, sparsifier = prepared(
        gradient_batches=batches, exploration=Exploration(interval=5)
    )
    last = []
    for _ in range(15):
        last = [*last, flat(set_gradients(bag))][-batches:]
        optimizer.step()
        before = flat(snapshot(bag)), flat(sparsifier.topology)
        if sparsifier.step():
            scores = {
                name: [abs(sum(gs)) for gs in zip(*(g[name] for g in last), strict=True)]
                for name in before[0]
            }
            check(sparsifier, bag, before, survivors(*before, 0.5), scores)


def test_a_window_longer_than_the_interval_starts_at_the_exploration_before():
    bag, optimizer, sparsifier = prepared(gradient_batches=5, exploration=Exploration(interval=2))
    last = []
    for _ in range(8):
        last.append(flat(set_gradients(bag)))
        optimizer.step()
        before = flat(snapshot(bag)), flat(sparsifier.topology)
        if sparsifier.step():
            scores = {
                name: [abs(sum(gs)) for gs in zip(*(g[name] for g in last), strict=True)]
                for name in before[0]
            }
            check(sparsifier, bag, before, survivors(*before, 0.5), scores)
            last = []


def test_anyones_functions_prune_and_grow():
    bag, optimizer, sparsifier = prepared(
        prune=Score(lambda view: -view.weight, frozenset()),
        grow=lambda view: view.gradient,
    )
    for _ in range(5):
        gradients = flat(set_gradients(bag))
        optimizer.step()
        before = flat(snapshot(bag)), flat(sparsifier.topology)
        kept = survivors(*before, 0.3, keep=lambda w: -w)
        sparsifier.step()
        check(sparsifier, bag, before, kept, gradients)


def test_a_function_may_rule_entries_out_with_minus_infinity():
    """ITOP's "random unfired": a weight that was active before is the last resort."""
    fired = {}

    def unfired(view):
        return torch.where(fired[view.name], -math.inf, 1.0)

    bag, optimizer, sparsifier = prepared(grow=Score(unfired, frozenset()))
    fired |= {name: mask.clone() for name, mask in sparsifier.topology.items()}
    for _ in range(12):
        set_gradients(bag)
        optimizer.step()
        sparsifier.step()
        for name, mask in sparsifier.topology.items():
            new = mask & ~fired[name]
            assert new.sum() == min(math.ceil(0.3 * mask.sum()), (~fired[name]).sum())
            fired[name] |= mask
    assert sparsifier.itop_rate == 1.0


def test_random_growth_reaches_every_inactive_weight_alike_whatever_the_gradient():
    bag, optimizer, sparsifier = prepared(
        grow="random", exploration=None, include=["a"], regrown_value="keep"
    )
    state = sparsifier.state_dict()
    weight = bag.a.weight
    values = weight.detach().clone()
    hits = torch.zeros(weight.shape)
    set_gradients(bag)
    for _ in range(600):
        state["generator"] = sparsifier.state_dict()["generator"]
        sparsifier.load_state_dict(state)
        weight.data.copy_(values)
        sparsifier.explore(0.5)
        hits += sparsifier.topology["a.weight"]
    certain = hits == 600
    assert certain.sum() == 18  # 36 weights, half of which survive
    # 18 grow among 102 candidates: 106 of 600 times each.
    assert hits[~certain].min() > 60
    assert hits[~certain].max() < 155
    assert optimizer.state == {}


@pytest.mark.parametrize("shares", [{"gradient": 0.5, "random": 0.5}, {"gradient": 1, "random": 3}])
def test_a_mixture_grows_its_share_by_each_score(shares):
    bag, optimizer, sparsifier = prepared(grow=shares)
    share = shares["gradient"] / sum(shares.values())
    not_by_gradient = 0
    for _ in range(10):
        gradients = flat(set_gradients(bag))
        optimizer.step()
        before = flat(snapshot(bag)), flat(sparsifier.topology)
        kept = survivors(*before, 0.3)
        sparsifier.step()
        for name, mask in flat(sparsifier.topology).items():
            count = sum(before[1][name]) - len(kept[name])
            scores = [abs(g) for g in gradients[name]]
            candidates = [i for i in range(len(mask)) if i not in kept[name]]
            by_gradient = best(scores, round(share * count), candidates)
            now = {i for i, on in enumerate(mask) if on}
            assert kept[name] | by_gradient <= now
            assert len(now) == sum(before[1][name])
            not_by_gradient += len(now - best(scores, count, candidates) - kept[name])
    assert not_by_gradient > 20


@pytest.mark.parametrize(
    ("rate", "pruned"), [(0.0, 0), (1e-6, 1), (0.07, 7), (0.071, 8), (0.55, 55), (1.0, 100)]
)
def test_exactly_the_ceiling_of_the_share_is_pruned(rate, pruned):
    network = nn.Linear(20, 20, bias=False)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    sparsifier = Sparsifier(network, optimizer, 0.75, exploration=None)
    assert sparsifier.statistics()[0].nonzeros == 100
    mask = sparsifier.topology["weight"]
    network.weight.grad = (~mask).float()  # so that only weights not active yet are grown
    sparsifier.keep_gradients()
    optimizer.step()
    sparsifier.explore(rate)
    assert (mask & ~sparsifier.topology["weight"]).sum() == pruned


def test_a_topology_that_was_handed_out_stays_as_it_was():
    bag, optimizer, sparsifier = prepared()
    handed_out = sparsifier.topology
    copies = {name: mask.clone() for name, mask in handed_out.items()}
    fingerprint = sparsifier.digest
    set_gradients(bag)
    optimizer.step()
    sparsifier.step()
    assert sparsifier.digest != fingerprint
    for name, mask in handed_out.items():
        assert torch.equal(mask, copies[name])


@pytest.mark.parametrize("place", ["active", "inactive"])
@pytest.mark.parametrize("grow", ["gradient", "momentum"])
def test_a_nan_gradient_is_refused_and_leaves_the_topology_alone(place, grow):
    bag, optimizer, sparsifier = prepared(grow=grow)
    set_gradients(bag)
    mask = sparsifier.topology["c.weight"]  # the last layer: the others must not change either
    bag.c.weight.grad[mask if place == "active" else ~mask] = math.nan
    before = sparsifier.digest
    optimizer.step()
    weights = snapshot(bag)
    assert (weights["c.weight"][~mask] == 0).all()
    assert (optimizer.state[bag.c.weight]["momentum_buffer"][~mask] == 0).all()
    with pytest.raises(FreeTicketsError, match=r"'c\.weight' contain NaN.*diverged"):
        sparsifier.step()
    assert sparsifier.digest == before
    for name, weight in bag.named_parameters():
        assert torch.equal(weight.nan_to_num(7), weights[name].nan_to_num(7))


def test_infinite_gradients_count_as_the_largest():
    bag, optimizer, sparsifier = prepared()
    gradients = set_gradients(bag)
    inactive = (~sparsifier.topology["a.weight"]).nonzero()[:4]
    for row, column in inactive:
        bag.a.weight.grad[row, column] = -math.inf
        gradients["a.weight"][row, column] = math.inf
    optimizer.step()
    before = flat(snapshot(bag)), flat(sparsifier.topology)
    sparsifier.step()
    scores = {name: [abs(g) for g in values] for name, values in flat(gradients).items()}
    check(sparsifier, bag, before, survivors(*before, 0.3), scores)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_no_share_is_refused(rate):
    _, _, sparsifier = prepared(grow="random")
    with pytest.raises(FreeTicketsError, match="rate must lie between 0 and 1"):
        sparsifier.explore(rate)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_a_network_without_a_sparse_layer_explores_nothing(scope):
    bag = Bag()
    optimizer = torch.optim.SGD(bag.parameters(), lr=0.1)
    sparsifier = Sparsifier(
        bag, optimizer, 0.0, exploration=Exploration(interval=1), prune_scope=scope
    )
    set_gradients(bag)
    optimizer.step()
    before = snapshot(bag)
    sparsifier.step()
    sparsifier.explore(0.8)
    assert sparsifier.topology == {}
    assert all(torch.equal(w, before[name]) for name, w in bag.named_parameters())


# ---- whatever the gradients

KINDS = ("random", "zero", "tied", "dead units", "few", "none", "huge", "tiny")


def gradient(weight, kind, source):
    drawn = torch.randn(weight.shape, generator=source, dtype=weight.dtype)
    if kind == "none":
        return None
    if kind == "zero":
        return torch.zeros_like(drawn)
    if kind == "tied":
        return drawn.sign()
    if kind == "dead units":
        alive = torch.rand(weight.shape[0], generator=source) < 0.3
        return drawn * alive.view(-1, *[1] * (weight.ndim - 1))
    if kind == "few":  # fewer than are to be grown: what made others lose weights
        return drawn * (torch.rand(weight.shape, generator=source) < 0.02)
    if kind == "huge":
        return drawn * 1e30
    if kind == "tiny":
        return drawn * 1e-40
    return drawn


class Mixed(nn.Module):
    """Small layers that ERK leaves dense among larger ones, and all kinds of weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.wide = nn.Conv2d(16, 12, 3)
        self.linear = nn.Linear(40, 30)
        self.recurrent = nn.GRU(8, 9)
        self.attention = nn.MultiheadAttention(8, 2)
        self.last = nn.Linear(4, 3)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, 1e-2, momentum=0.9, nesterov=True, weight_decay=1e-2),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, amsgrad=True, weight_decay=1e-2),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2, weight_decay=1e-1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-2, momentum=0.9, centered=True),
}
EXPLORATIONS = 120  # of each optimizer and scope: 1,200 in all


def assert_only_active(sparsifier, model, optimizer):
    for name, mask in sparsifier.topology.items():
        weight = model.get_parameter(name)
        assert (weight[~mask] == 0).all(), name
        shaped = [
            value
            for value in optimizer.state.get(weight, {}).values()
            if isinstance(value, torch.Tensor) and value.shape == weight.shape
        ]
        for value in shaped:
            assert (value[~mask] == 0).all(), name


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("scope", ["layer", "global"])
def test_counts_dense_layers_and_zeros_hold_through_every_exploration(name, scope):
    torch.manual_seed(0)
    source = torch.Generator().manual_seed(1)
    model, twin = Mixed(), Mixed()
    twin.load_state_dict(model.state_dict())
    optimizer = OPTIMIZERS[name](model.parameters())
    plain = OPTIMIZERS[name](twin.parameters())  # the same training without a sparsifier
    explored = 0
    sparsifier = Sparsifier(
        model,
        optimizer,
        0.8,
        exploration=lambda step: 0.8 if step % 6 == 0 else (0.5 if step % 2 == 0 else 0.0),
        prune_scope=scope,
        regrown_value="keep" if scope == "global" else "zero",
        backend="masked",
    )
    rows = {row.name: row for row in sparsifier.statistics()}
    dense = {n for n, row in rows.items() if row.nonzeros == row.weights}
    assert {"first.weight", "last.weight"} <= dense
    assert dense.isdisjoint(sparsifier.topology)
    sparse = {n: row.nonzeros for n, row in rows.items() if n not in dense}
    assert sparse.keys() == sparsifier.topology.keys()
    kinds = torch.randint(len(KINDS), (EXPLORATIONS, 20), generator=source).tolist()
    for step in range(EXPLORATIONS):
        for index, (n, parameter) in enumerate(model.named_parameters()):
            kind = "random" if n in dense else KINDS[kinds[step][index % 20]]
            parameter.grad = gradient(parameter, kind, source)
            other = twin.get_parameter(n)
            other.grad = None if parameter.grad is None else parameter.grad.clone()
        if step % 2 == 0:
            sparsifier.keep_gradients()
        optimizer.step()
        plain.step()
        assert_only_active(sparsifier, model, optimizer)
        by_schedule = sparsifier.step()
        if not by_schedule:
            sparsifier.explore(0.8)  # an escape
        explored += 1
        assert_only_active(sparsifier, model, optimizer)
        for n, mask in sparsifier.topology.items():
            assert mask.sum() == sparse[n], n
        for n in rows.keys() - sparse.keys():
            assert torch.equal(model.get_parameter(n), twin.get_parameter(n)), n
    assert explored == EXPLORATIONS
    assert [row.nonzeros for row in sparsifier.statistics()] == [
        row.nonzeros for row in rows.values()
    ]


def test_dense_layers_survive_an_escape():
    torch.manual_seed(0)
    model = Mixed()
    optimizer = torch.optim.Adam(model.parameters())
    sparsifier = Sparsifier(
        model, optimizer, 0.8, exploration=None, grow="random", backend="masked"
    )
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    sparsifier.step()
    untouched = [n for n, _ in model.named_parameters() if n not in sparsifier.topology]
    assert "first.weight" in untouched
    assert "norm.weight" in untouched
    values = {n: model.get_parameter(n).detach().clone() for n in untouched}
    moments = {n: optimizer.state[model.get_parameter(n)]["exp_avg"].clone() for n in untouched}
    for rate in (0.8, 1.0):
        sparsifier.explore(rate)
    for n in untouched:
        assert torch.equal(model.get_parameter(n), values[n])
        assert torch.equal(optimizer.state[model.get_parameter(n)]["exp_avg"], moments[n])
        assert (values[n] != 0).any() or n.endswith("bias")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_counts_hold_in_every_precision(dtype):
    torch.manual_seed(0)
    bag = Bag(dtype)
    optimizer = torch.optim.SGD(bag.parameters(), 0.01, momentum=0.9)
    sparsifier = Sparsifier(bag, optimizer, 0.7, exploration=Exploration(0.4, interval=1))
    counts = [int(mask.sum()) for mask in sparsifier.topology.values()]
    for _ in range(20):
        set_gradients(bag)
        optimizer.step()
        sparsifier.step()
        assert [int(mask.sum()) for mask in sparsifier.topology.values()] == counts
        assert_only_active(sparsifier, bag, optimizer)


def test_counts_hold_for_channels_last_weights():
    torch.manual_seed(0)
    plain, bag = Bag(), Bag()
    bag.load_state_dict(plain.state_dict())
    bag = bag.to(memory_format=torch.channels_last)
    digests = []
    for network in (plain, bag):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
        sparsifier = Sparsifier(
            network,
            optimizer,
            0.7,
            distribution="uniform",
            exploration=Exploration(0.4, interval=1),
            backend="masked",
        )
        for _ in range(5):
            for parameter in network.parameters():
                # Ties, so that their random order is compared as well.
                drawn = torch.randint(-2, 3, parameter.shape).float()
                parameter.grad = drawn.contiguous(
                    memory_format=torch.channels_last
                    if parameter.ndim == 4 and network is bag
                    else torch.contiguous_format
                )
            optimizer.step()
            sparsifier.step()
        assert sparsifier.topology["b.weight"].sum() == round(0.3 * 432)
        digests.append(sparsifier.digest)
    assert bag.b.weight.is_contiguous(memory_format=torch.channels_last)
    assert digests[0] == digests[1]
