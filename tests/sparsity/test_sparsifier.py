"""The sparsifier in the loops that people write."""

import functools
import math

import pytest
import torch
from torch import nn

from freetickets.sparsity import Exploration, Sparsifier
from freetickets.sparsity import network as backends

from . import training
from .training import OPTIMIZERS, Run, assert_alike, built, convnet, generator, matrices, mlp


def test_the_network_is_sparse_from_the_start_and_tells_so_in_its_own_order(backend):
    run, fresh = Run(sparsity=0.8, backend=backend, distribution="erk"), Run(sparsity=None)
    assert (run.sparsifier.steps, run.sparsifier.optimizer) == (0, run.optimizer)
    rows, masks = run.sparsifier.statistics(), run.sparsifier.topology
    assert [row.name for row in rows] == list(masks) == ["0.weight", "2.weight", "4.weight"]
    for row in rows:
        weight = run.weight(row.name)
        assert torch.equal(weight, fresh.weight(row.name) * masks[row.name])
        assert row.shape == tuple(weight.shape)
        assert row.nonzeros == row.ever_active == (weight != 0).sum()
    assert torch.equal(run.model[0].bias, fresh.model[0].bias)
    assert sum(row.nonzeros for row in rows) == round(0.2 * sum(row.weights for row in rows))
    header, *lines, total = str(run.sparsifier).splitlines()
    assert header.split() == ["layer", "shape", "non-zeros", "sparsity", "ever", "active"]
    assert lines[0] == "0.weight              24x12           59    0.7951        0.205"
    assert (len(lines), total) == (3, "sparsity 0.7995, ITOP rate 0.2005")


def test_the_sparsity_of_each_layer_and_the_selection_of_layers_are_passed_on(backend):
    run = Run(sparsity={"0": 0.75, "2.weight": 0.5}, backend=backend)
    assert list(run.counts.values()) == [72, 216, 108]
    assert list(run.sparsifier.topology) == ["0.weight", "2.weight"]
    assert list(Run(exclude=["0"], backend=backend).counts) == ["2.weight", "4.weight"]
    assert list(Run(include=["0.*"], backend=backend).counts) == ["0.weight"]
    assert Run(lambda: nn.Embedding(20, 9), sparsity=0.5, embeddings=True).counts == {"weight": 90}


def test_one_seed_gives_one_topology_and_the_global_generator_has_no_say(backend):
    def digests(seed, global_seed):
        run = Run(sparsity=None)
        run.sparsify(backend=backend, seed=seed, grow="random")
        torch.manual_seed(global_seed)
        expected = torch.rand(3)
        torch.manual_seed(global_seed)
        seen = [run.digest, *((run.train([step]), run.digest)[1] for step in range(4))]
        run.sparsifier.explore(0.5)
        assert torch.equal(torch.rand(3), expected)  # nor is it touched
        return seen

    first, other = digests(1, 5), digests(2, 5)
    assert first == digests(1, 6)
    assert first[0] != other[0]
    assert first[-1] != other[-1]
    assert len(set(first)) == 3


@pytest.mark.parametrize(
    ("exploration", "expected"),
    [
        (Exploration(interval=3, stop=6), [3, 6]),
        (lambda step: 0.5 * (step in (1, 4)), [1, 4]),
        (None, []),
    ],
    ids=["schedule", "function", "static"],
)
def test_steps_are_counted_and_explored_by_schedule(backend, exploration, expected):
    run = Run(backend=backend, exploration=exploration)
    for step in range(1, 11):
        before = run.digest
        assert run.sparsifier.due == (step in expected)
        assert run.train([step]) == [step in expected]
        assert (run.digest != before) == (step in expected)
        run.assert_zero_outside()
    assert run.sparsifier.steps == 10


def test_a_step_that_was_taken_can_not_be_called_skipped_by_mistake(backend):
    """The gradients that are left are masked ones: growth must not look at them."""
    runs = [Run(backend=backend, exploration=Exploration(interval=1)) for _ in range(2)]
    for skipped, run in enumerate(runs):
        run.backward()
        run.optimizer.step()
        assert run.sparsifier.step(skipped=bool(skipped))
    assert_alike(*runs)


@pytest.mark.parametrize("masked_before", [False, True])
def test_an_exploration_can_take_the_place_of_the_optimizers_step(masked_before, backend):
    """As RigL does: the step that explores trains nothing, as if its learning rate were zero."""
    options = {"more": {"momentum": 0.0, "nesterov": False}, "backend": backend}
    plain, skipping = Run(**options), Run(**options)
    for step in range(6):
        due = plain.sparsifier.due
        plain.optimizer.param_groups[0]["lr"] = 0.0 if due else 0.05
        plain.train([step])
        skipping.backward(step)
        if masked_before:
            skipping.sparsifier.mask_gradients()
        if not due:
            skipping.optimizer.step()
        assert skipping.sparsifier.step(skipped=due) == due
        assert_alike(plain, skipping)


def test_accumulated_gradients_train_like_one_big_batch(backend):
    big, small = Run(backend=backend), Run(backend=backend)
    for step in range(8):
        big.train([step])
        small.optimizer.zero_grad()
        for index, part in enumerate(small.batch(step).chunk(4), start=1):
            (small.loss(part) / 4).backward()
            if index == 4:
                small.optimizer.step()
            small.sparsifier.step()
        assert_alike(big, small, 1e-3)  # a step that the optimizer did not take does not count


@pytest.mark.parametrize("grow", ["gradient", "momentum"])
def test_clipping_sees_active_gradients_and_growth_the_dense_ones(grow):
    plain, clipped = Run(grow=grow), Run(grow=grow)
    for step in range(6):
        plain.train([step])
        clipped.backward(step)
        gradients = {n: p.grad.clone() for n, p in clipped.model.named_parameters()}
        for name, mask in clipped.sparsifier.topology.items():
            gradients[name] *= mask
        clipped.sparsifier.mask_gradients()
        clipped.sparsifier.mask_gradients()  # a second call must not record masked gradients
        norm = nn.utils.clip_grad_norm_(clipped.model.parameters(), 1e6)
        expected = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
        assert norm.item() == pytest.approx(expected)
        clipped.step()
        assert plain.digest == clipped.digest


def test_layers_out_of_use_keep_their_count(backend):
    run = Run(exploration=Exploration(interval=1), backend=backend)
    before = run.counts
    for step in range(5):
        run.optimizer.zero_grad()
        run.model[:3](run.batch(step)).square().mean().backward()
        assert run.step()
        assert all(p.grad is None for p in run.model[4].parameters())  # it is not used
        assert run.counts == before
        run.assert_zero_outside()


# ---- mixed precision


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize(
    ("grow", "batches", "escape"),
    [("gradient", 1, False), ("gradient", 2, False), ("momentum", 1, False), ("gradient", 1, True)],
)
def test_a_step_that_overflowed_does_not_count_and_the_next_one_explores(
    fused, clip, grow, batches, escape, backend
):
    """Of six steps the second overflows; an escape that was asked for then follows the third."""
    schedule = None if escape else Exploration(interval=2)
    options = {"grow": grow, "gradient_batches": batches, "exploration": schedule}
    run = Run(optimizer="Adam", backend=backend, more={"fused": fused}, **options)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    explored = []
    for attempt in range(6):
        if escape and attempt == 1:
            run.sparsifier.keep_gradients()
        run.optimizer.zero_grad()
        loss = run.loss(run.batch(attempt)) * (math.inf if attempt == 1 else 1)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(run.optimizer)
            run.sparsifier.mask_gradients()
            nn.utils.clip_grad_norm_(run.model.parameters(), 1e6)
        before = run.model[0].weight.detach().clone()
        scaler.step(run.optimizer)
        scaler.update()
        explored.append(run.sparsifier.step())
        assert attempt != 1 or torch.equal(run.model[0].weight, before)
        if escape and attempt == 2:
            run.sparsifier.explore(0.5)  # the wish of the step that was skipped is still held
        run.assert_zero_outside()
        assert run.model[0].weight.isfinite().all()
    assert explored == [attempt in (2, 4) and not escape for attempt in range(6)]
    assert run.sparsifier.steps == 5


def test_half_precision_by_autocast_trains_alike_and_keeps_everything_sparse(backend):
    plain, run = Run(convnet, backend=backend), Run(convnet, backend=backend)
    counts, digests, types = run.counts, set(), set()
    run.model.register_forward_hook(lambda _, __, outputs: types.add(outputs.dtype))
    for step in range(4):
        plain.train([step])
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run.loss(run.batch(step))
        loss.backward()
        run.step()
        run.assert_zero_outside()
        assert run.counts == counts
        digests.add(run.digest)
        if step == 0:  # later, rounding decides which weights are grown
            assert_alike(run, plain, 0.05)
    assert len(digests) == 3
    assert types == {torch.bfloat16}


# A hook within a compiled network: its compiler looks at a gradient that is not there.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@built
def test_a_network_of_sparse_layers_can_be_compiled():
    plain, run = Run(backend="sparse"), Run(backend="sparse")
    plain.train(range(6))
    run.train(range(6), torch.compile(run.model, backend="eager"))
    assert_alike(run, plain, 1e-4)


def upsampling():
    down, up = nn.Conv1d(5, 6, 3, 2, padding=1), nn.ConvTranspose1d(6, 5, 4, 2, padding=1)
    return nn.Sequential(down, nn.ReLU(), up)


@pytest.mark.parametrize("architecture", [training.recurrent, training.transformer, upsampling])
@pytest.mark.parametrize("backend", ["masked", "auto"])
def test_any_architecture_trains_sparse(architecture, backend, skipping_zeros):
    run = Run(architecture, "AdamW", 0.5, exploration=Exploration(interval=4), backend=backend)
    inputs = torch.randn(32, 5, 8, generator=generator())
    counts, losses = run.counts, []
    for _ in range(20):
        run.optimizer.zero_grad()
        loss = run.loss(inputs)
        loss.backward()
        losses.append(loss.item())
        run.step()
        run.assert_zero_outside()
        assert run.counts == counts
    assert losses[-1] < losses[0]


# ---- mistakes


def test_an_optimizer_must_train_all_weights_and_every_one_is_tried(refused):
    network = mlp()
    optimizer = torch.optim.SGD(network[:3].parameters(), lr=0.1)
    refused(r"the optimizer does not train '4\.weight'", Sparsifier, network, optimizer)
    Sparsifier(network, optimizer, exclude=["4"]).detach()
    optimizer.add_param_group({"params": network[4].parameters(), "lr": 0.2})
    assert len(Sparsifier(network, optimizer, topology="given").statistics()) == 3
    assert set(OPTIMIZERS) >= KNOWN


def test_wrong_options_are_refused_and_leave_network_and_optimizer_alone(refused):
    for options, message in (
        ({"prune_scope": "network"}, "unknown prune_scope 'network': known: layer"),
        ({"redistribute": "magnitude"}, "unknown redistribute 'magnitude': known: mom"),
        ({"regrown_value": "old"}, "unknown regrown_value 'old': known: zero, keep"),
        ({"gradient_batches": 0}, "gradient_batches must be at least 1"),
        ({"include": []}, "no layer to make sparse"),
        ({"grow": "gradients"}, "unknown score 'gradients'"),
        ({"distribution": "ekr"}, "unknown distribution"),
        ({"sparsity": 0.9999}, "without a single weight"),
        *(
            ({name: value, "backend": "sparse"}, f"does not go with {name}, or use 'auto'")
            for name, value in {
                "reserve": 0.1,
                "pruning": lambda step: None,
                "redistribute": "momentum",
            }.items()
        ),
        ({"reserve": 0.1, "pruning": lambda step: None}, "reserve goes with neither"),
        ({"reserve": 0.1, "redistribute": "momentum"}, "reserve goes with neither"),
        ({"reserve": 1.5}, "reserve must lie between 0 and 1"),
        ({"topology": "given"}, "its weights have no zeros: load them first"),
        ({"topology": "givn"}, "unknown topology 'givn': did you mean 'given'"),
        ({"backend": "spars"}, "unknown backend 'spars': did you mean 'sparse'"),
        ({"structure": "2:4", "sparsity": 0.9}, "'2:4' has sparsity 0.5, not 0.9: set sparsity to"),
        ({"structure": "2:4", "sparsity": 0.0}, "'2:4' has sparsity 0.5, not 0.0"),
        ({"structure": "2:4", "sparsity": {"2": 0.8}}, "sparsity 0.5, not 0.8"),
        ({"structure": "block-64x64"}, "no layer can have structure 'block-64x64', from"),
        *(
            ({"structure": "fan-in", **option}, f"^structure 'fan-in' does not go with {words}: le")
            for option, words in (
                ({"pruning": lambda step: None}, "gradual pruning"),
                ({"redistribute": "momentum"}, "redistribute='momentum'"),
                ({"reserve": 0.1}, "reserve=0.1"),
                ({"prune_scope": "global"}, "prune_scope='global'"),
                ({"prune_scope": "threshold"}, "prune_scope='threshold'"),
                ({"grow": {"gradient": 1, "random": 1}}, "a mixture of growth scores"),
            )
        ),
    ):
        run = Run(sparsity=None)
        modules = [type(module) for module in run.model.modules()]
        refused(message, run.sparsify, **options)
        assert (run.model[0].weight != 0).all()
        run.backward()
        gradient = run.model[0].weight.grad.clone()
        run.optimizer.step()
        assert torch.equal(run.model[0].weight.grad, gradient)
        assert [type(module) for module in run.model.modules()] == modules


def test_without_kernels_nothing_can_be_sparse_and_auto_goes_on(refused, monkeypatch):
    monkeypatch.setattr(backends, "available", lambda: False)
    refused(r"'sparse' is not possible: .* a C\+\+ compiler", Run, backend="sparse")
    assert Run(backend="auto").sparsifier.choices is None


# ---- every optimizer of torch: outside the topology, all is exactly zero

# SparseAdam is for embeddings with sparse gradients, which are refused by name.
KNOWN = {n for n in dir(torch.optim) if n[0].isupper()} - {"Optimizer", "SparseAdam"}
VARIANTS = [(n, v) for n in OPTIMIZERS if n in KNOWN for v in ("closure", "plain", "foreach")]
VARIANTS += [(name, "fused") for name in ("SGD", "Adam", "AdamW")]
NO_SUCH = [("LBFGS", "plain"), ("LBFGS", "foreach"), ("Muon", "foreach")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_somebody_writes_outside_the_topology_is_gone_after_the_next_step(dtype):
    layer = nn.Linear(12, 8).to(dtype)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    sparsifier = Sparsifier(layer, optimizer, 0.5, backend="masked", exploration=None)
    outside = ~sparsifier.topology["weight"]
    for ruin in (0.5, math.inf, math.nan):
        for replace in (False, True):  # the memory of the weight and of its state, too
            layer(torch.randn(4, 12, dtype=dtype)).square().mean().backward()
            layer.weight.grad[outside] = ruin
            weight = layer.weight.data
            layer.weight.data = torch.where(outside, ruin, weight) if replace else weight
            if replace:
                state = optimizer.state[layer.weight]
                state["momentum_buffer"] = torch.where(outside, ruin, state["momentum_buffer"])
            optimizer.step()
            sparsifier.step()
            optimizer.zero_grad()
            for tensor in (layer.weight, optimizer.state[layer.weight]["momentum_buffer"]):
                assert (tensor[outside] == 0).all()
                assert (tensor[~outside].isfinite() & (tensor[~outside] != 0)).all()


@pytest.mark.parametrize(("name", "variant"), [each for each in VARIANTS if each not in NO_SUCH])
def test_inactive_weights_and_state_stay_zero_and_the_loss_falls(name, variant):
    more = {variant: True} if variant in ("foreach", "fused") else {}
    # Masked: sparse layers hold no weight outside that could move.
    run = Run(matrices, name, 0.6, exploration=Exploration(0.3, interval=5), more=more)
    counts = run.counts

    def loss_of():
        # Not even in between, while the optimizer tries steps, is there a weight outside.
        for n, mask in run.sparsifier.topology.items():
            assert (run.weight(n)[~mask] == 0).all()
        return run.backward()

    losses = []
    for step in range(1, 31):
        if variant == "closure":
            losses.append(run.optimizer.step(loss_of).item())
        else:
            losses.append(loss_of().item())
            run.optimizer.step()
        run.assert_zero_outside()
        assert run.sparsifier.step() == (step % 5 == 0)
        run.assert_zero_outside()
        assert run.counts == counts
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
@pytest.mark.parametrize("keyword", [False, True])
def test_a_closure_trains_and_grows_as_the_plain_loop_does(name, keyword, backend):
    options = {"exploration": Exploration(interval=3), "backend": backend}
    plain, closed = (Run(matrices, name, 0.6, **options) for _ in range(2))
    plain.train(range(10))
    for step in range(10):
        closure = functools.partial(closed.backward, step)
        closed.optimizer.step(closure=closure) if keyword else closed.optimizer.step(closure)
        closed.sparsifier.step()
    assert_alike(plain, closed)
