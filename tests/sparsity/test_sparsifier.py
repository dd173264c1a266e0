"""The sparsifier in the loops that people write."""

import copy
import math

import pytest
import torch
from torch import nn

from freetickets.errors import FreeTicketsError, UnknownNameError
from freetickets.sparsity import Exploration, Sparsifier


def prepared(sparsity=0.6, *, optimizer=None, dtype=torch.float32, **options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 10)).to(dtype)
    optimizer = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    optimizer = optimizer(network.parameters())
    defaults = {"exploration": Exploration(0.3, interval=2), "distribution": "uniform"}
    options = {**defaults, "backend": "masked"} | options
    return network, optimizer, Sparsifier(network, optimizer, sparsity, **options)


def batch(size=8, dtype=torch.float32, seed=0):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(size, 10, generator=source, dtype=dtype)


def loss_of(network, inputs):
    return nn.functional.mse_loss(network(inputs), inputs.flip(1))


def weight_of(network, name):
    """A weight, zeros and all, in whichever way it is held."""
    path, _, own_name = name.rpartition(".")
    return getattr(network.get_submodule(path), own_name)


def assert_sparse(network, sparsifier):
    for name, mask in sparsifier.topology.items():
        assert (weight_of(network, name)[~mask] == 0).all(), name


def counts(sparsifier):
    return [int(mask.sum()) for mask in sparsifier.topology.values()]


def test_the_network_is_sparse_from_the_start(backend):
    network, optimizer, sparsifier = prepared(0.9, backend=backend, distribution="erk")
    assert sum(int((network[i].weight != 0).sum()) for i in (0, 2)) == 32
    assert (network[0].bias != 0).all()
    assert sparsifier.sparsity == 0.9
    assert sparsifier.steps == 0
    assert sparsifier.optimizer is optimizer
    assert_sparse(network, sparsifier)


def test_the_initial_values_of_active_weights_stay(backend):
    torch.manual_seed(0)
    fresh = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 10))
    network, _, sparsifier = prepared(backend=backend)
    for name, mask in sparsifier.topology.items():
        assert torch.equal(weight_of(network, name), fresh.get_parameter(name) * mask)


def test_a_sparsity_of_each_layer_can_be_given(backend):
    _, _, sparsifier = prepared({"0": 0.9, "2.weight": 0.5}, backend=backend)
    assert counts(sparsifier) == [16, 80]
    _, _, sparsifier = prepared({"0": 0.9}, backend=backend)
    assert list(sparsifier.topology) == ["0.weight"]


def test_include_exclude_and_embeddings_reach_the_selection():
    _, _, sparsifier = prepared(exclude=["0"])
    assert list(sparsifier.topology) == ["2.weight"]
    _, _, sparsifier = prepared(include=["0.*"])
    assert list(sparsifier.topology) == ["0.weight"]
    network = nn.Sequential(nn.Embedding(20, 10), nn.Linear(10, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(
        network, optimizer, 0.5, embeddings=True, distribution="uniform", backend="masked"
    )
    network(torch.arange(8)).sum().backward()
    optimizer.step()
    sparsifier.step()
    assert counts(sparsifier) == [100, 50]
    assert_sparse(network, sparsifier)


def test_one_seed_gives_one_topology_and_another_seed_another(backend):
    def digests(seed, global_seed):
        network, optimizer, sparsifier = prepared(backend=backend, seed=seed, grow="random")
        torch.manual_seed(global_seed)
        seen = [sparsifier.digest]
        for _ in range(4):
            loss_of(network, batch()).backward()
            optimizer.step()
            sparsifier.step()
            seen.append(sparsifier.digest)
        return seen

    first = digests(1, 5)
    assert first == digests(1, 6)  # the global generator has no say
    other = digests(2, 5)
    assert first[0] != other[0]
    assert first[-1] != other[-1]
    assert len(set(first)) == 3


def test_the_global_generator_is_not_touched(backend):
    torch.manual_seed(3)
    expected = torch.rand(3)
    network, optimizer, sparsifier = prepared(backend=backend, grow="random")
    torch.manual_seed(3)
    loss_of(network, batch()).backward()
    optimizer.step()
    sparsifier.step()
    sparsifier.explore(0.5)
    assert torch.equal(torch.rand(3), expected)


def test_steps_are_counted_and_explored_by_schedule(backend):
    network, optimizer, sparsifier = prepared(
        backend=backend, exploration=Exploration(interval=3, stop=6)
    )
    explored = []
    for _ in range(10):
        before = sparsifier.digest
        loss_of(network, batch()).backward()
        optimizer.step()
        explored.append(sparsifier.step())
        assert explored[-1] == (sparsifier.digest != before)
    assert [step for step, done in enumerate(explored, start=1) if done] == [3, 6]
    assert sparsifier.steps == 10


def test_a_step_that_was_taken_can_not_be_called_skipped_by_mistake(backend):
    """The gradients that are left are masked ones: growth must not look at them."""
    digests = set()
    for skipped in (False, True):
        network, optimizer, sparsifier = prepared(
            backend=backend, exploration=Exploration(interval=1)
        )
        loss_of(network, batch()).backward()
        optimizer.step()
        assert sparsifier.step(skipped=skipped)
        assert sparsifier.steps == 1
        digests.add(sparsifier.digest)
    assert len(digests) == 1


def test_a_static_topology_never_changes(backend):
    network, optimizer, sparsifier = prepared(backend=backend, exploration=None)
    before = sparsifier.digest
    for _ in range(5):
        loss_of(network, batch()).backward()
        optimizer.step()
        assert not sparsifier.step()
        assert_sparse(network, sparsifier)
    assert sparsifier.digest == before
    assert not sparsifier.due


def test_any_function_can_be_the_schedule(backend):
    network, optimizer, sparsifier = prepared(
        backend=backend, exploration=lambda step: 0.5 * (step in (1, 4))
    )
    explored = []
    for _ in range(5):
        loss_of(network, batch()).backward()
        optimizer.step()
        explored.append(sparsifier.step())
    assert explored == [True, False, False, True, False]


def test_a_step_that_the_optimizer_did_not_take_does_not_count(backend):
    network, optimizer, sparsifier = prepared(backend=backend)
    assert not sparsifier.step()
    loss_of(network, batch()).backward()
    assert not sparsifier.step()
    assert sparsifier.steps == 0
    optimizer.step()
    sparsifier.step()
    assert not sparsifier.step()
    assert sparsifier.steps == 1


@pytest.mark.parametrize("masked_before", [False, True])
def test_an_exploration_can_take_the_place_of_the_optimizers_step(masked_before):
    """As RigL does: on the steps that explore, the weights are not updated."""
    network, optimizer, sparsifier = prepared()
    for _ in range(6):
        optimizer.zero_grad()
        loss_of(network, batch()).backward()
        if not sparsifier.due:
            optimizer.step()
            assert not sparsifier.step()
            continue
        dense = network[0].weight.grad.abs()
        before, weights = sparsifier.topology["0.weight"], network[0].weight.detach().clone()
        if masked_before:
            sparsifier.mask_gradients()
        assert sparsifier.step(skipped=True)
        after = sparsifier.topology["0.weight"]
        kept = before & after & (network[0].weight != 0)
        assert torch.equal(network[0].weight[kept], weights[kept])
        assert dense[after & ~before].min() >= dense[~after & ~before].max()
    assert sparsifier.steps == 6


def test_accumulated_gradients_train_like_one_big_batch():
    big, small = prepared(dtype=torch.float64), prepared(dtype=torch.float64)
    for step in range(8):
        inputs = batch(12, torch.float64, seed=step)
        network, optimizer, sparsifier = big
        optimizer.zero_grad()
        loss_of(network, inputs).backward()
        optimizer.step()
        sparsifier.step()
        network, optimizer, sparsifier = small
        optimizer.zero_grad()
        for index, part in enumerate(inputs.chunk(3)):
            (loss_of(network, part) / 3).backward()
            if index == 2:
                optimizer.step()
            sparsifier.step()
        assert big[2].digest == small[2].digest
        torch.testing.assert_close(big[0][0].weight, small[0][0].weight)
    assert small[2].steps == 8


@pytest.mark.parametrize("grow", ["gradient", "momentum"])
def test_clipping_sees_active_gradients_and_growth_the_dense_ones(grow):
    plain, clipped = prepared(grow=grow), prepared(grow=grow)
    for _ in range(6):
        for (network, optimizer, sparsifier), clip in ((plain, False), (clipped, True)):
            optimizer.zero_grad()
            loss_of(network, batch()).backward()
            if clip:
                gradients = {n: p.grad.clone() for n, p in network.named_parameters()}
                for name, mask in sparsifier.topology.items():
                    gradients[name] *= mask
                sparsifier.mask_gradients()
                sparsifier.mask_gradients()  # a second call must not record masked gradients
                norm = nn.utils.clip_grad_norm_(network.parameters(), 1e6)
                expected = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
                assert norm.item() == pytest.approx(expected)
            optimizer.step()
            sparsifier.step()
        assert plain[2].digest == clipped[2].digest


def test_shared_weights_are_held_once_and_train():
    network = nn.Sequential(nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 10))
    network[2].weight = network[0].weight
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.5, exploration=Exploration(interval=1))
    for _ in range(4):
        loss_of(network, batch()).backward()
        optimizer.step()
        sparsifier.step()
        assert counts(sparsifier) == [50]
        assert_sparse(network, sparsifier)


def test_layers_out_of_use_keep_their_count(backend):
    network, optimizer, sparsifier = prepared(exploration=Exploration(interval=1), backend=backend)
    before = counts(sparsifier)
    for _ in range(5):
        optimizer.zero_grad()
        network[0](batch()).square().mean().backward()  # the last layer has no gradient
        optimizer.step()
        assert sparsifier.step()
        assert all(p.grad is None for p in network[2].parameters())
        assert counts(sparsifier) == before
        assert_sparse(network, sparsifier)


# ---- mixed precision


def overflowing_loop(optimizer, *, clip, backend, grow="gradient", batches=1, escape=False):
    """Trains six steps, of which the second overflows; returns what happened."""
    network, optimizer, sparsifier = prepared(
        optimizer=optimizer,
        exploration=None if escape else Exploration(interval=2),
        grow=grow,
        gradient_batches=batches,
        backend=backend,
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    explored = []
    for attempt in range(6):
        if escape and attempt == 1:
            sparsifier.keep_gradients()
        optimizer.zero_grad()
        loss = loss_of(network, batch(seed=attempt))
        if attempt == 1:
            loss = loss * math.inf
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            sparsifier.mask_gradients()
            nn.utils.clip_grad_norm_(network.parameters(), 1e6)
        before = network[0].weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        explored.append(sparsifier.step())
        if attempt == 1:
            assert torch.equal(network[0].weight, before)
        if escape and attempt == 2:
            sparsifier.explore(0.5)  # the wish of the step that was skipped is still held
        assert_sparse(network, sparsifier)
        assert network[0].weight.isfinite().all()
    return sparsifier, explored


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("grow", ["gradient", "momentum"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_step_that_overflowed_does_not_count_and_the_next_one_explores(
    fused, clip, grow, batches, backend
):
    def adam(parameters):
        return torch.optim.Adam(parameters, lr=0.01, fused=fused)

    sparsifier, explored = overflowing_loop(
        adam, clip=clip, backend=backend, grow=grow, batches=batches
    )
    assert explored == [False, False, True, False, True, False]
    assert sparsifier.steps == 5


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_an_escape_asked_for_at_an_overflow_has_its_gradient_a_step_later(fused, clip, backend):
    def adam(parameters):
        return torch.optim.Adam(parameters, lr=0.01, fused=fused)

    sparsifier, _ = overflowing_loop(adam, clip=clip, backend=backend, escape=True)
    assert sparsifier.steps == 5


def test_autocast_in_half_precision_keeps_everything_sparse(backend):
    network, optimizer, sparsifier = prepared(backend=backend)
    before = counts(sparsifier)
    digests = set()
    for seed in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert network(batch()).dtype == torch.bfloat16
            loss = loss_of(network, batch(seed=seed))
        loss.backward()
        optimizer.step()
        sparsifier.step()
        assert_sparse(network, sparsifier)
        assert counts(sparsifier) == before
        digests.add(sparsifier.digest)
    assert len(digests) == 4


# A hook within a compiled network: its compiler looks at a gradient that is not there.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_networks_train_exactly_like_plain_ones(backend):
    ends = []
    for compiled in (False, True):
        network, optimizer, sparsifier = prepared(backend=backend)
        forward = torch.compile(network, backend="eager") if compiled else network
        for seed in range(6):
            optimizer.zero_grad()
            inputs = batch(seed=seed)
            nn.functional.mse_loss(forward(inputs), inputs.flip(1)).backward()
            optimizer.step()
            sparsifier.step()
            assert_sparse(network, sparsifier)
        ends.append((sparsifier.digest, network[0].weight.detach()))
    assert ends[0][0] == ends[1][0]
    torch.testing.assert_close(ends[0][1], ends[1][1])


def test_a_compiled_network_can_be_made_sparse():
    network = nn.Sequential(nn.Linear(10, 10))
    compiled = torch.compile(network, backend="eager")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(compiled, optimizer, 0.5, exploration=Exploration(interval=1))
    for _ in range(3):
        compiled(batch()).square().mean().backward()
        optimizer.step()
        assert sparsifier.step()
    assert (network[0].weight != 0).sum() <= 50
    assert counts(sparsifier) == [50]


# ---- other architectures


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(10, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(16, 10)

    def forward(self, x):
        return self.out(self.lstm(x.unsqueeze(1))[0].squeeze(1))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(10, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.encoder(x.unsqueeze(1)).squeeze(1)


class Upsampling(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv1d(1, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose1d(6, 1, 4, stride=2, padding=1)

    def forward(self, x):
        return self.up(torch.relu(self.down(x.unsqueeze(1)))).squeeze(1)


@pytest.mark.parametrize("architecture", [Recurrent, Attention, Upsampling])
def test_any_architecture_trains_sparse(architecture, backend):
    torch.manual_seed(0)
    network = architecture()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    sparsifier = Sparsifier(
        network,
        optimizer,
        0.5,
        distribution="uniform",
        exploration=Exploration(interval=4),
        # Where no layer can be sparse, "sparse" is refused, and "auto" is not.
        backend="auto" if backend == "sparse" else backend,
    )
    before = counts(sparsifier)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = loss_of(network, batch(32))
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        sparsifier.step()
        assert_sparse(network, sparsifier)
        assert counts(sparsifier) == before
    assert losses[-1] < losses[0]


# ---- mistakes


def test_an_optimizer_that_lacks_a_weight_is_refused():
    network = nn.Sequential(nn.Linear(10, 16), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(network[0].parameters(), lr=0.1)
    with pytest.raises(FreeTicketsError, match=r"the optimizer does not train '1\.weight'"):
        Sparsifier(network, optimizer)
    with pytest.raises(FreeTicketsError, match=r"does not train '0\.weight'"):
        Sparsifier(copy.deepcopy(network), optimizer)
    Sparsifier(network, optimizer, exclude=["1"])


def test_parameter_groups_are_all_looked_at():
    network = nn.Sequential(nn.Linear(10, 16), nn.Linear(16, 10))
    groups = [{"params": network[0].parameters()}, {"params": network[1].parameters(), "lr": 0.2}]
    sparsifier = Sparsifier(network, torch.optim.SGD(groups, lr=0.1), distribution="uniform")
    assert len(sparsifier.topology) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prune_scope": "network"}, "prune_scope must be 'layer', 'global' or 'threshold'"),
        ({"regrown_value": "old"}, "regrown_value must be 'zero' or 'keep'"),
        ({"gradient_batches": 0}, "gradient_batches must be at least 1"),
        ({"include": []}, "no layer to make sparse"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(FreeTicketsError, match=message):
        prepared(**options)


def test_unknown_names_are_refused():
    with pytest.raises(UnknownNameError, match="unknown score 'gradients'"):
        prepared(grow="gradients")
    with pytest.raises(UnknownNameError, match="unknown distribution"):
        prepared(distribution="ekr")


def test_a_refused_sparsifier_leaves_network_and_optimizer_alone():
    network = nn.Sequential(nn.Linear(10, 16), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    with pytest.raises(FreeTicketsError):
        Sparsifier(network, optimizer, 0.9999)
    assert (network[0].weight != 0).all()
    network(batch()).sum().backward()
    gradient = network[0].weight.grad.clone()
    optimizer.step()
    assert torch.equal(network[0].weight.grad, gradient)


def test_a_detached_sparsifier_lets_the_weights_go(backend):
    network, optimizer, sparsifier = prepared(backend=backend)
    loss_of(network, batch()).backward()
    optimizer.step()
    sparsifier.step()
    sparsifier.detach()
    sparsifier.detach()
    assert_sparse(network, sparsifier)  # the weights stay as they are
    optimizer.zero_grad()
    loss_of(network, batch()).backward()
    optimizer.step()
    assert (network[0].weight != 0).all()
    assert not sparsifier.step()
    again = copy.deepcopy(sparsifier)
    again.optimizer.step()
    assert not again.step()


# ---- does it train?


def blobs(features, informative, size, source):
    """Two classes that differ in the first few features only."""
    labels = torch.randint(2, (size,), generator=source)
    inputs = torch.randn(size, features, generator=source)
    inputs[:, :informative] += 1.5 * (2 * labels.unsqueeze(1) - 1)
    return inputs, labels


@pytest.mark.parametrize("grow", ["gradient", "momentum", {"gradient": 1, "random": 1}])
def test_a_sparse_network_learns_and_exploration_finds_the_features_that_matter(grow, backend):
    torch.manual_seed(0)
    source = torch.Generator().manual_seed(1)
    features, informative = 100, 5
    network = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    sparsifier = Sparsifier(
        network,
        optimizer,
        0.95,
        exploration=Exploration(0.3, interval=10, stop=250),
        grow=grow,
        backend=backend,
    )

    def share_that_matters():
        mask = sparsifier.topology["0.weight"]
        return (mask[:, :informative].sum() / mask.sum()).item()

    start, losses = share_that_matters(), []
    for _ in range(300):
        inputs, labels = blobs(features, informative, 64, source)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(inputs), labels)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        sparsifier.step()
    inputs, labels = blobs(features, informative, 1000, source)
    accuracy = (network(inputs).argmax(1) == labels).float().mean()
    assert accuracy > 0.95
    assert sum(losses[-20:]) < 0.4 * sum(losses[:20])
    assert start < 0.15
    assert share_that_matters() > 2.5 * start
    assert sparsifier.sparsity == pytest.approx(0.95, abs=1e-3)
