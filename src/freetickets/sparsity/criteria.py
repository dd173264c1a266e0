"""Pruning at initialisation: which weights an untrained network keeps for good.

A criterion scores the weights of a network, the higher, the better; `initial_topology` keeps the
best. All criteria look at one copy of the network, so the network itself is never touched.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _NormBase

from ..errors import FreeTicketsError, check_known
from .distribution import DISTRIBUTIONS, Distribution, Shapes, Sparsity, allocate
from .layers import Selectors, bare, select_weights
from .topology import Topology, select_across, select_top

Batch = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Probe:
    """What a criterion looks at: a copy of the network, which it may change as it likes.

    The copy has no dropout, and its norms use the statistics of the batch. The weights to score, by
    name, are zero where pruned in an earlier round.
    """

    model: nn.Module
    weights: dict[str, nn.Parameter]
    batches: Sequence[Batch]
    loss: Loss
    generator: torch.Generator

    def gradients(self, batch: Batch, *, create_graph: bool = False) -> list[Tensor]:
        """The gradient of one batch's share of the mean loss."""
        loss = self.loss(self.model(batch[0]), batch[1]) / len(self.batches)
        return self.derive(loss, create_graph=create_graph)

    def derive(self, value: Tensor, *, create_graph: bool = False) -> list[Tensor]:
        """The derivatives of a value by the weights; zero where it does not depend on them."""
        weights, grad = list(self.weights.values()), torch.autograd.grad
        return list(grad(value, weights, create_graph=create_graph, materialize_grads=True))

    def times(self, factors: Iterable[Tensor]) -> list[Tensor]:
        """The weights, each times its factor."""
        return [w.detach() * f for w, f in zip(self.weights.values(), factors, strict=True)]


@dataclass(frozen=True)
class Criterion:
    """Scores weights, in their order and shapes; prunes in so many rounds; may look at data."""

    function: Callable[[Probe], Sequence[Tensor]]
    needs_batches: bool = True
    rounds: int = 1


def magnitude(probe: Probe) -> list[Tensor]:
    """|w|."""
    return [weight.detach().abs() for weight in probe.weights.values()]


def random(probe: Probe) -> list[Tensor]:
    """Random numbers; with a distribution, the topology that sparse training starts from."""
    return [torch.rand(w.shape, generator=probe.generator) for w in probe.weights.values()]


def snip(probe: Probe) -> list[Tensor]:
    """SNIP: |w g|, how fast the loss changes as the weight fades."""
    gradients = _add(probe.gradients(batch) for batch in probe.batches)
    return [score.abs() for score in probe.times(gradients)]


def grasp(probe: Probe) -> list[Tensor]:
    """GraSP: w (H g), half of what the squared norm of the gradient would lose without the weight.

    The paper's score is the change, hence its minus, and it removes the highest.
    """
    gradients = _add(probe.gradients(batch) for batch in probe.batches)

    def product(batch: Batch) -> list[Tensor]:
        own = probe.gradients(batch, create_graph=True)
        dots = [(a * b).sum() for a, b in zip(own, gradients, strict=True)]
        return probe.derive(torch.stack(dots).sum())

    return probe.times(_add(product(batch) for batch in probe.batches))


def synflow(probe: Probe) -> list[Tensor]:
    """SynFlow: |w dR/dw|, the flow through a weight from an input of ones to the outputs' sum R.

    It runs through the network of absolute values. Norms that look at the sample itself would
    cancel it, so they let it pass; BatchNorm uses its running statistics.
    """
    # The flow grows with each layer, in a deep network beyond what single precision can hold.
    model = probe.model.double().eval()
    for module in model.modules():
        is_norm = isinstance(module, _NORMS)
        if is_norm and getattr(module, "running_mean", None) is None:
            module.forward = lambda inputs: inputs
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    ones = torch.ones_like(probe.batches[0][0][:1])
    flow = model(ones.double() if ones.is_floating_point() else ones).sum()
    return [score.abs() for score in probe.times(probe.derive(flow))]


CRITERIA: dict[str, Criterion] = {
    "snip": Criterion(snip),
    "grasp": Criterion(grasp),
    "synflow": Criterion(synflow, rounds=100),
    "magnitude": Criterion(magnitude, needs_batches=False),
    "random": Criterion(random, needs_batches=False),
}


def initial_topology(
    criterion: str, model: nn.Module, sparsity: Sparsity, batches: Sequence[Batch] = (), *,
    distribution: Distribution = "global", include: Selectors | None = None,
    exclude: Selectors = (), embeddings: bool = False, loss: Loss = cross_entropy, seed: int = 0,
) -> Topology:  # fmt: skip
    """Chooses the weights that a network keeps before it is trained.

    Scores are taken without dropout, and the network stays as it is. Every layer keeps at least its
    best weight: a network with an empty layer could not learn.

    The criterion is a name of `CRITERIA`. With "global", one threshold keeps the best of the whole
    network; otherwise sparsity and distribution are as in `allocate`. SNIP's and GraSP's papers
    take batches of some ten samples per class; SynFlow looks only at the shape of the first input.
    `include`, `exclude` and `embeddings` are as in `select_weights`; the seed is that of random
    scores and of ties.

    Returns:
        One mask for each selected weight, on the CPU; dense layers have a mask that is all True.

    Example:
        >>> net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 2))
        >>> batch = torch.randn(8, 20), torch.arange(8) % 2
        >>> topology = initial_topology("snip", net, 0.9, [batch])
        >>> sum(int(mask.sum()) for mask in topology.values())
        66
    """
    check_known("criterion", criterion, CRITERIA)
    rule = CRITERIA[criterion]
    if rule.needs_batches and not batches:
        raise FreeTicketsError(f"{criterion!r} looks at data: pass a few batches")
    model = copy.deepcopy(bare(model)).eval()
    for module in model.modules():
        if isinstance(module, _NormBase):
            module.train()  # an untrained network has no running statistics worth the name
    weights = select_weights(model, include=include, exclude=exclude, embeddings=embeddings)
    device = next((weight.device for weight in weights.values()), None)
    there = [(inputs.to(device), targets.to(device)) for inputs, targets in batches]
    generator = torch.Generator().manual_seed(seed)
    probe = Probe(model, weights, there, loss, generator)
    groups = _groups({n: tuple(w.shape) for n, w in weights.items()}, sparsity, distribution)
    topology = {n: torch.ones(w.shape, dtype=torch.bool) for n, w in weights.items()}
    for turn in range(1, rule.rounds + 1):
        scores = _scores(criterion, probe)
        for names, count in groups:
            size = sum(topology[name].numel() for name in names)
            # The weights that stay become fewer by the same factor in each round.
            target = round(size * (count / size) ** (turn / rule.rounds))
            # Each layer keeps its best weight; the others are found by one threshold.
            first = [select_top(scores[n], 1, topology[n], generator) for n in names]
            rest = [topology[n] & ~mask for n, mask in zip(names, first, strict=True)]
            others = select_across([scores[n] for n in names], target - len(names), rest, generator)
            topology |= {n: a | b for n, a, b in zip(names, first, others, strict=True)}
        with torch.no_grad():
            for name, weight in weights.items():
                weight.mul_(topology[name].to(weight.device))
    return topology


def _groups(
    shapes: Shapes, sparsity: Sparsity, distribution: Distribution
) -> list[tuple[list[str], int]]:
    # The layers that share one threshold, and how many weights they keep together.
    if isinstance(distribution, str):
        check_known("distribution", distribution, ["global", *DISTRIBUTIONS])
    if distribution != "global" or isinstance(sparsity, Mapping) or not shapes:
        return [([name], n) for name, n in allocate(shapes, sparsity, distribution).items()]
    whole = {"of the whole network": (sum(map(math.prod, shapes.values())),)}
    (count,) = allocate(whole, sparsity, "uniform").values()
    if count < len(shapes):
        left = f"{count} weights for {len(shapes)} layers"
        raise FreeTicketsError(f"this sparsity leaves {left}: lower it")
    return [(list(shapes), count)]


def _scores(criterion: str, probe: Probe) -> dict[str, Tensor]:
    # The faster kernels of attention have no second derivative, which GraSP needs, and cuDNN's
    # recurrent layers have no gradient at all in evaluation mode.
    without_cudnn = torch.backends.cudnn.flags(enabled=False)
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), without_cudnn:
        scores = CRITERIA[criterion].function(probe)
    found = {name: values.cpu() for name, values in zip(probe.weights, scores, strict=True)}
    for name, values in found.items():
        if not bool(values.isfinite().all()):
            raise FreeTicketsError(
                f"the {criterion} scores of {name!r} are not finite: check data and initial weights"
            )
    return found


def _add(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    return [sum(rest, first) for first, *rest in zip(*parts, strict=True)]
