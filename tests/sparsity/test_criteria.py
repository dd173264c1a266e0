import copy
import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from freetickets.sparsity import allocate, select_weights
from freetickets.sparsity.criteria import CRITERIA, Criterion, initial_topology

from .training import generator, recurrent, transformer

FUNCTIONS = {name: criterion.function for name, criterion in CRITERIA.items()}
everyone = pytest.mark.parametrize("criterion", sorted(CRITERIA))


def drawn(model, seed=0, scale=1.0):
    """The same network with weights that no global state decides."""
    source = generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter[0].numel()
            parameter.copy_(torch.randn(parameter.shape, generator=source) * scale / fan_in**0.5)
    return model


def batches_of(*shape, count=2, classes=3, dtype=torch.float32, seed=5):
    source = generator(seed)
    return [
        (torch.randn(shape, generator=source, dtype=dtype), torch.arange(shape[0]) % classes)
        for _ in range(count)
    ]


def perceptron(dtype=torch.float32):
    return drawn(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))).to(dtype)


def convolutional():
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.5),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 3),
    )  # fmt: skip
    return drawn(model)


NETWORKS = {
    "perceptron": (perceptron, (6, 4)),
    "convolutional": (convolutional, (6, 2, 6, 6)),
    "recurrent": (lambda: drawn(recurrent(0.5)), (6, 5, 8)),
    "transformer": (lambda: drawn(transformer(0.5)), (6, 5, 8)),
}
networks = pytest.mark.parametrize("network", sorted(NETWORKS))


def scores_of(criterion, model, batches, monkeypatch, loss=cross_entropy):
    """What a criterion gave to the first round."""
    seen = []

    def listen(probe):
        seen.append(FUNCTIONS[criterion](probe))
        return seen[-1]

    monkeypatch.setitem(CRITERIA, "listener", Criterion(listen))
    names = initial_topology("listener", model, 0.5, batches, loss=loss)
    return dict(zip(names, seen[0], strict=True))


def mean_loss(model, batches):
    return sum(cross_entropy(model(x), y) for x, y in batches) / len(batches)


@pytest.mark.parametrize("criterion", ["snip", "grasp"])
def test_scores_are_the_papers_formulas(criterion, monkeypatch):
    """What the loss changes as a weight fades, and what the gradient's norm would lose without."""
    model, batches = perceptron(torch.float64), batches_of(6, 4, dtype=torch.float64)
    scores = scores_of(criterion, model, batches, monkeypatch)
    weights = select_weights(model)
    sizes = [weight.numel() for weight in weights.values()]
    start = torch.cat([weight.detach().flatten() for weight in weights.values()])

    def loss(vector):
        parts = vector.split(sizes)
        changed = {n: p.view(w.shape) for (n, w), p in zip(weights.items(), parts, strict=True)}
        outputs = [torch.func.functional_call(model, changed, (x,)) for x, _ in batches]
        pairs = zip(outputs, batches, strict=True)
        return sum(cross_entropy(output, y) for output, (_, y) in pairs) / len(batches)

    hessian = torch.autograd.functional.hessian(loss, start)
    gradient = torch.autograd.functional.jacobian(loss, start)
    expected = (start * gradient).abs() if criterion == "snip" else start * (hessian @ gradient)
    torch.testing.assert_close(torch.cat([s.flatten() for s in scores.values()]), expected)


def test_synflow_of_a_linear_chain_is_the_product_of_the_flows_on_both_sides(monkeypatch):
    pairs = itertools.pairwise([4, 6, 5, 3])
    model = drawn(nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairs)))
    scores = scores_of("synflow", model, batches_of(6, 4), monkeypatch)
    a, b, c = chain = [layer.weight.detach().double().abs() for layer in model]
    before = [torch.ones(4, dtype=torch.float64), a.sum(1), b @ a.sum(1)]
    after = [c.sum(0) @ b, c.sum(0), torch.ones(3, dtype=torch.float64)]
    for index, weight in enumerate(chain):
        flow = weight * after[index][:, None] * before[index]
        torch.testing.assert_close(scores[f"{index}.weight"], flow)


def test_synflow_prunes_by_the_same_share_in_each_of_its_rounds(monkeypatch):
    seen = []

    def listen(probe):
        seen.append(sum(int(w.count_nonzero()) for w in probe.weights.values()))
        return FUNCTIONS["synflow"](probe)

    rounds = CRITERIA["synflow"].rounds
    assert rounds == 100
    monkeypatch.setitem(CRITERIA, "listener", Criterion(listen, rounds=rounds))
    model = drawn(nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 20)))
    initial_topology("listener", model, 0.99, batches_of(6, 40))
    assert seen == [round(3000 * 0.01 ** (done / rounds)) for done in range(rounds)]


def test_synflow_takes_very_deep_networks_and_tokens():
    model = drawn(nn.Sequential(*(nn.Linear(20, 20) for _ in range(30))), scale=10)
    for parameter in model.parameters():
        parameter.data.abs_()
    assert not model(torch.ones(1, 20)).isfinite().all()
    topology = initial_topology("synflow", model, 0.5, batches_of(2, 20))
    assert min(int(mask.sum()) for mask in topology.values()) > 100
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 3))
    tokens = torch.randint(0, 9, (6, 3), generator=generator())
    topology = initial_topology("synflow", model, 0.5, [(tokens, torch.arange(6) % 3)])
    assert {name: int(mask.sum()) for name, mask in topology.items()} == {"2.weight": 18}


HALF_AS_LARGE = nn.BatchNorm1d(6, eps=0.0)
HALF_AS_LARGE.running_var.fill_(4.0)
PASSING = [nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.BatchNorm1d(6, track_running_stats=False)]


@pytest.mark.parametrize("norm", [*PASSING, HALF_AS_LARGE])
def test_synflow_flows_through_norms_that_look_at_the_sample(norm, monkeypatch):
    plain = drawn(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)))
    expected = scores_of("synflow", plain, batches_of(6, 4), monkeypatch)
    normed = nn.Sequential(plain[0], norm, plain[1], plain[2])
    found = scores_of("synflow", normed, batches_of(6, 4), monkeypatch)
    for mine, theirs in zip(found.values(), expected.values(), strict=True):
        torch.testing.assert_close(mine, theirs / (2 if norm is HALF_AS_LARGE else 1))


@pytest.mark.parametrize("distribution", ["global", "uniform"])
def test_magnitude_keeps_the_largest_weights_of_the_network_or_of_each_layer(distribution):
    model = perceptron()
    topology = initial_topology("magnitude", model, 0.6, distribution=distribution)
    layers = [(w.detach().abs(), topology[name]) for name, w in select_weights(model).items()]
    assert sum(int(kept.sum()) for _, kept in layers) == 14
    if distribution == "global":
        values, masks = zip(*((v.flatten(), m.flatten()) for v, m in layers), strict=True)
        layers = [(torch.cat(values), torch.cat(masks))]
    for values, kept in layers:
        assert values[kept].min() > values[~kept].max()


def test_random_topologies_come_from_the_seed_alone(same):
    first, again, other = (
        initial_topology("random", perceptron(), 0.5, seed=seed) for seed in (3, 3, 4)
    )
    assert same(first, again)
    assert not same(first, other)


@everyone
@networks
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.93])
def test_a_global_threshold_leaves_the_exact_count_no_layer_empty(criterion, network, sparsity):
    make, shape = NETWORKS[network]
    model = make()
    weights = select_weights(model)
    topology = initial_topology(criterion, model, sparsity, batches_of(*shape))
    assert {n: m.shape for n, m in topology.items()} == {n: w.shape for n, w in weights.items()}
    assert all(mask.dtype == torch.bool and mask.any() for mask in topology.values())
    size = sum(weight.numel() for weight in weights.values())
    assert sum(int(mask.sum()) for mask in topology.values()) == round((1 - sparsity) * size)


@everyone
@pytest.mark.parametrize("distribution", ["erk", "uniform", "uniform-dense-first"])
def test_a_distribution_gives_each_layer_its_count(criterion, distribution):
    model, batches = convolutional(), batches_of(6, 2, 6, 6)
    topology = initial_topology(criterion, model, 0.8, batches, distribution=distribution)
    shapes = {name: tuple(weight.shape) for name, weight in select_weights(model).items()}
    counts = allocate(shapes, 0.8, distribution)
    assert {name: int(mask.sum()) for name, mask in topology.items()} == counts


def test_the_sparsity_of_each_layer_and_the_selection_count():
    for sparsity, options, counts in (
        ({"0": 0.75}, {}, {"0.weight": 5, "2.weight": 15}),  # leaves nothing to a threshold
        (0.5, {"exclude": "2"}, {"0.weight": 10}),
        (0.5, {"include": "2"}, {"2.weight": 8}),
    ):
        topology = initial_topology("magnitude", perceptron(), sparsity, **options)
        assert {name: int(mask.sum()) for name, mask in topology.items()} == counts


@everyone
@networks
def test_the_network_is_left_as_it_was_whatever_its_mode_and_dropout(criterion, network, same):
    make, shape = NETWORKS[network]
    model, batches = make(), batches_of(*shape)
    cross_entropy(model(batches[0][0]), batches[0][1]).backward()

    def all_of_it():
        return [
            {n: t.detach().clone() for n, t in model.state_dict().items()},
            {n: p.grad.clone() for n, p in model.named_parameters()},
            [(n, m.training, type(m), sorted(vars(m))) for n, m in model.named_modules()],
            torch.get_rng_state(),
        ]

    kept, found = copy.deepcopy(batches), []
    for training in (True, False):
        model.train(training)
        before = all_of_it()
        with torch.set_grad_enabled(training):
            found.append(initial_topology(criterion, model, 0.8, batches))
        assert same(before, all_of_it())
    assert same(kept, batches)
    assert same(*found)


def test_norms_use_the_statistics_of_the_batch(monkeypatch):
    model, batches = convolutional(), batches_of(6, 2, 6, 6, count=1)
    scores = scores_of("snip", model, batches, monkeypatch)
    model[3].p = 0.0
    mean_loss(model.train(), batches).backward()
    for name, weight in select_weights(model).items():
        torch.testing.assert_close(scores[name], (weight * weight.grad).abs().detach())


def test_a_weight_without_gradient_is_last_and_another_loss_scores_otherwise():
    network = drawn(nn.Linear(4, 3))
    network.idle = nn.Linear(4, 3)
    topology = initial_topology("snip", network, 0.5, batches_of(6, 4))
    assert [int(topology[name].sum()) for name in ("weight", "idle.weight")] == [11, 1]
    model = perceptron()
    inputs = batches_of(6, 4)[0][0]
    batch = [(inputs, torch.randn(6, 3, generator=generator(9)))]
    squared = initial_topology("snip", model, 0.5, batch, loss=nn.functional.mse_loss)
    usual = initial_topology("snip", model, 0.5, batches_of(6, 4))
    assert any(not torch.equal(squared[name], usual[name]) for name in usual)


def test_what_cannot_be_is_refused(refused):
    for changes, message in (
        ({"criterion": "snap"}, "unknown criterion 'snap': did you mean 'snip'"),
        ({"distribution": "globl"}, "did you mean 'global'"),
        *(
            ({"criterion": name, "batches": ()}, f"'{name}' looks at data: pass a few batches")
            for name in ("snip", "grasp", "synflow")
        ),
        ({"sparsity": 1.5}, "must be at least 0 and below 1"),
        ({"sparsity": 0.97}, "leaves 1 weights for 2 layers: lower it"),
        ({"model": nn.Sequential(nn.ReLU())}, "no layer to make sparse"),
        (
            {"batches": [(torch.full((3, 4), math.nan), torch.arange(3))]},
            r"snip scores of '0\.weight' are not finite",
        ),
    ):
        usual = {"model": perceptron(), "sparsity": 0.5, "batches": batches_of(6, 4)}
        refused(message, initial_topology, **{"criterion": "snip", **usual, **changes})
