"""The ledger: what a plan costs, phase by phase, against one dense model; and FLOPs, for it.

FLOPs are counted as RigL does: two operations for each active weight each time it is used, and
3 x forward for each sample trained on. BatchNorm, activations, pooling and the products inside
attention, which have no weights, are left out. Dense gradients for growth, which the paper leaves
out (less than 0.1 %), and those of a reserve stand in a column of their own. Validation and
evaluation are not counted.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import FreeTicketsError, is_out_of_memory
from ..methods.events import Prices
from ..methods.members import MemberNetwork
from ..methods.plan import Plan, SparseOptions
from ..methods.timeline import Span, Timeline
from ..reading import Count, Natural, NotNegative, Text
from ..sparsity.layers import select_weights
from ..sparsity.score import as_score
from ..sparsity.structure import parse_structure

_TOO_LARGE_TO_COPY = 20_000_000  # parameters


@dataclass(frozen=True)
class PhaseCost:
    """One line of the ledger; `seconds` is 0 until the phase has been trained."""

    run: Count
    phase: Text
    epochs: NotNegative
    steps: Natural
    sparsity: float
    explorations: Natural
    flops: NotNegative
    growth_flops: NotNegative
    seconds: NotNegative = 0.0


@dataclass(frozen=True)
class Ledger:
    """What a plan costs, expected or spent.

    `runs` are trainings, as the paper counts them; the unit of cost is a dense training of
    `dense_epochs`. `test_flops` are those of one sample through all members, `ticket_parameters`
    the non-zero ones of one member, `ticket_bytes` all members on disk, without their headers.
    """

    phases: tuple[PhaseCost, ...]
    tickets: Natural
    members: Count
    runs: NotNegative
    dense_epochs: NotNegative
    dense_flops: NotNegative
    dense_forward_flops: NotNegative
    test_flops: NotNegative
    parameters: Natural
    ticket_parameters: Natural
    ticket_bytes: Natural

    @property
    def flops(self) -> float:
        """Training FLOPs of all phases, without growth."""
        return math.fsum(phase.flops for phase in self.phases)

    @property
    def relative_flops(self) -> float:
        """Training FLOPs as a multiple of one dense training: the paper's column."""
        return _multiple(self.flops, self.dense_flops)

    @property
    def relative_growth_flops(self) -> float:
        """What dense gradients for growth add, as a multiple of one dense training."""
        return _multiple(math.fsum(p.growth_flops for p in self.phases), self.dense_flops)

    @property
    def relative_test_flops(self) -> float:
        """FLOPs of one prediction by all members, as a multiple of one dense network's."""
        return _multiple(self.test_flops, self.dense_forward_flops)

    @property
    def seconds(self) -> float:
        """Time spent in training steps so far."""
        return math.fsum(phase.seconds for phase in self.phases)

    def with_seconds(self, seconds: Mapping[tuple[int, str], float]) -> Ledger:
        """This ledger with the time that each (run, phase) really took."""
        spent = (replace(p, seconds=seconds.get((p.run, p.phase), 0.0)) for p in self.phases)
        return replace(self, phases=tuple(spent))

    def as_dict(self) -> dict[str, Any]:
        """All numbers as plain values, with stable keys."""
        derived = [f"relative_{name}flops" for name in ("", "growth_", "test_")]
        derived += ["flops", "seconds"]
        return {name: getattr(self, name) for name in derived} | asdict(self)


def _multiple(cost: float, unit: float) -> float:
    # A network whose layers are all of a kind that is not counted costs nothing.
    return cost / unit if unit else math.nan


def price(
    plan: Plan, model: nn.Module, input_shape: tuple[int, ...], *, train_size: int, batch_size: int,
    steps_per_epoch: int, dense_epochs: float | None = None, transformed: nn.Module | None = None,
    integers: bool = False,
) -> Ledger:  # fmt: skip
    """Prices a plan for a network, which may live on the meta device, before any training.

    An epoch has `train_size` samples, without those of validation. The unit is a dense training of
    `dense_epochs`, by default the plan's own; `transformed` is the network as the method trains it,
    if that is another; with `integers` samples are token ids.
    """
    plain = at = _costs(model, input_shape, plan.sparse, integers)
    if transformed is not None:
        at = _costs(transformed, input_shape, plan.sparse, integers)
    trained, members, share = model if transformed is None else transformed, 1, 1.0
    if isinstance(trained, MemberNetwork):
        members, share = trained.members, trained.training_share
    single, dense, last = plain(0.0), at(0.0), at(plan.runs[-1].phases[-1].sparsity)
    phases = []
    for number, run in enumerate(plan.runs, start=1):
        timeline = Timeline(run, steps_per_epoch)
        for span in timeline.spans:
            steps = span.end - span.start
            samples = train_size * steps / steps_per_epoch
            forward = _mean_forward_flops(at, timeline, span)
            growth_steps, escapes_grow = _growth_steps(plan, timeline, span)
            growth = growth_steps * (dense.forward_flops - forward)
            if plan.sparse.reserve > 0:  # it takes the place of growth
                growth = steps * at(span.phase.sparsity).reserve_flops
            prices = Prices(forward, dense.forward_flops, train_size, batch_size, escapes_grow)
            costs = [event.cost(prices) for event in span.phase.at_end]
            phases.append(
                PhaseCost(
                    number,
                    span.phase.name,
                    span.phase.epochs,
                    steps,
                    span.phase.sparsity,
                    timeline.explorations(span),
                    3 * (share * forward) * samples + sum(cost.flops for cost in costs),
                    growth * batch_size + sum(cost.growth_flops for cost in costs),
                )
            )
    dense_epochs = plan.dense_epochs if dense_epochs is None else dense_epochs
    return Ledger(
        tuple(phases), plan.tickets, plan.tickets * members, plan.trainings or len(plan.runs),
        dense_epochs, 3 * single.forward_flops * train_size * dense_epochs, single.forward_flops,
        plan.tickets * last.forward_flops, single.parameters, last.parameters,
        plan.tickets * last.bytes,
    )  # fmt: skip


def _mean_forward_flops(at: Callable[[float], _Network], timeline: Timeline, span: Span) -> float:
    pruning = timeline.pruning(span)
    if pruning is None:
        return at(span.phase.sparsity).forward_flops
    total, sparsity, since = 0.0, pruning.initial, span.start
    for step in range(span.start + 1, span.end + 1):
        reached = pruning(step)
        if reached is not None or step == span.end:
            total += (step - since) * at(sparsity).forward_flops
            sparsity, since = sparsity if reached is None else reached, step
    return total / (span.end - span.start)


def _growth_steps(plan: Plan, timeline: Timeline, span: Span) -> tuple[int, bool]:
    """On how many steps of a phase all gradients are needed, and whether events add some."""
    # Momentum (SNFS) is a mean over all steps, whether it prunes, grows or shares out; growth by
    # gradient looks at explorations only.
    sparse = plan.sparse
    needs = as_score(sparse.prune).needs | as_score(sparse.grow).needs
    if "momentum" in needs or sparse.redistribute == "momentum":
        return span.end - span.start, False
    if "gradient" not in as_score(sparse.grow).needs:
        return 0, False
    return timeline.explorations(span), sparse.reserve == 0


class _Network(NamedTuple):
    """A network at one sparsity: FLOPs of one sample, non-zero parameters, size as a ticket."""

    forward_flops: float
    reserve_flops: float  # of the gradient of what trains besides the active weights (Top-KAST)
    parameters: int
    bytes: int


def _costs(
    model: nn.Module, shape: tuple[int, ...], options: SparseOptions, integers: bool
) -> Callable[[float], _Network]:
    """What one network costs at every sparsity that a plan asks for."""
    # Not zeros, which stand for "nothing" in many networks: of a text without a word.
    tokens = torch.ones(shape, dtype=torch.int64) if integers else None
    macs = count_macs(model, shape, example=tokens)
    weights = select_weights(model, exclude=options.exclude)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    others = sum(parameter.numel() for parameter in model.parameters()) - sum(sizes.values())
    buffers = sum(buffer.numel() for buffer in model.buffers())

    @cache
    def at(sparsity: float) -> _Network:
        counts = dict(sizes)
        if sparsity > 0:
            structure = parse_structure(options.structure)
            counts = structure.allocate(shapes, sparsity, options.distribution)
        densities = {name: counts[name] / sizes[name] for name in sizes}
        parameters = others + sum(counts.values())
        reserves = {name: min(options.reserve, 1 - d) for name, d in densities.items()}
        sparse = {name: count for name, count in macs.items() if name in reserves}
        topology_bits = sum(sizes[name] for name in sizes if counts[name] < sizes[name])
        return _Network(
            forward_flops(macs, densities),
            forward_flops(sparse, reserves),
            parameters,
            4 * (parameters + buffers) + topology_bits // 8,
        )

    return at


def count_macs(
    model: nn.Module, shape: tuple[int, ...], *, example: Tensor | Sequence[Tensor] | None = None
) -> dict[str, int]:
    """Counts the multiply-accumulates of each weight for one sample, in evaluation mode.

    One sample goes through a copy of the model: on the CPU, which takes a fraction of a second; for
    a model too large to copy on the meta device, which has shapes but no values. The model itself
    may live on any device and stays as it is.

    Args:
        model: Any network. Convolutions, linear and recurrent layers and attention are counted.
        shape: Of one sample, without the batch dimension.
        example: One sample to use instead of zeros, if they are integers or several inputs.

    Returns:
        That of each weight that was used, under the name of the parameter; of a weight that is
        shared or used several times the sum.

    Example:
        >>> count_macs(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1)), (3, 32, 32))
        {'0.weight': 221184}
    """
    if example is None:
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
        inputs = [torch.zeros(shape, dtype=dtype, device="meta")]
    else:
        inputs = [example] if isinstance(example, Tensor) else list(example)
    # The meta device needs no memory, but torch takes a second to load its kernels, once.
    large = sum(parameter.numel() for parameter in model.parameters()) > _TOO_LARGE_TO_COPY
    failure: Exception | None = None
    for device in ("meta", "cpu") if large else ("cpu", "meta"):
        try:
            return _count(model, inputs, device)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            failure = error  # the second attempt shows whether the model is at fault
    if isinstance(failure, FreeTicketsError):  # such as MIMO's, which says what does not suit it
        raise failure
    shapes = ", ".join(str(tuple(each.shape)) for each in inputs)
    raise FreeTicketsError(
        f"cannot count the FLOPs of {type(model).__name__} on a sample of shape {shapes}: "
        + str(failure).partition("\n")[0]
    ) from failure


def forward_flops(macs: Mapping[str, int], densities: Mapping[str, float] | None = None) -> float:
    """Returns the FLOPs of one sample forward: two operations a multiply-accumulate.

    `densities` are the shares of active weights of sparse parameters; the others are dense.
    """
    shares = densities or {}
    return math.fsum(2 * count * shares.get(name, 1.0) for name, count in macs.items())


# One use of a weight: the weight, its name in the module, multiply-accumulates.
Use = tuple[Tensor, str, int]


def _count(model: nn.Module, inputs: list[Tensor], device: str) -> dict[str, int]:
    model = _copy_to(model, device).eval()
    batch = [_to(each, device).unsqueeze(0) for each in inputs]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, int] = {}

    def watch(prefix: str, uses: Callable[..., Iterator[Use]]) -> Callable[..., None]:
        def hook(*call: Any) -> None:
            for weight, attribute, macs in uses(*call):
                # A weight that is computed (pruned, parametrized) is no parameter itself.
                name = names.get(id(weight)) or f"{prefix}.{attribute}".lstrip(".")
                found[name] = found.get(name, 0) + macs

        return hook

    for prefix, module in model.named_modules():
        # The user's own hooks may have effects elsewhere, and no result here depends on them.
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        for kinds, uses in _RULES.items():
            if isinstance(module, kinds):
                module.register_forward_hook(watch(prefix, uses), with_kwargs=True)
    with torch.no_grad():
        model(*batch)
    return found


def _copy_to(model: nn.Module, device: str) -> nn.Module:
    """Copies a model to `device`: deepcopy takes the tensors from its memo, shared ones once."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        own = (module._parameters, module._buffers, vars(module))
        for tensor in itertools.chain(*(each.values() for each in own)):
            if isinstance(tensor, Tensor) and id(tensor) not in memo:
                moved = _to(tensor, device)
                is_parameter = isinstance(tensor, nn.Parameter)
                memo[id(tensor)] = nn.Parameter(moved, False) if is_parameter else moved
    return copy.deepcopy(model, memo)


def _to(tensor: Tensor, device: str) -> Tensor:
    if tensor.device.type == "meta":
        return torch.zeros_like(tensor, device=device)
    return tensor.detach().to(device, copy=True)


def _forward(module: nn.Conv2d, args: Any, kwargs: Any, output: Tensor) -> Iterator[Use]:
    yield module.weight, "weight", output.numel() * math.prod(module.weight.shape[1:])


def _conv_transpose(module: nn.ConvTranspose2d, args: Any, kwargs: Any, _: Any) -> Iterator[Use]:
    inputs = _argument(args, kwargs, 0, "input")
    yield module.weight, "weight", inputs.numel() * module.weight[0].numel()


def _recurrent(module: nn.RNNBase, args: Any, kwargs: Any, _: Any) -> Iterator[Use]:
    inputs = _argument(args, kwargs, 0, "input")
    steps = _rows(inputs.data if hasattr(inputs, "batch_sizes") else inputs)
    for name, weight in module.named_parameters(recurse=False):
        if name.startswith("weight"):
            yield weight, name, steps * weight.numel()


def _attention(module: nn.MultiheadAttention, args: Any, kwargs: Any, _: Any) -> Iterator[Use]:
    arguments = enumerate(("query", "key", "value"))
    rows = [_rows(_argument(args, kwargs, place, name)) for place, name in arguments]
    if (joint := module.in_proj_weight) is not None:
        yield joint, "in_proj_weight", sum(rows) * module.embed_dim**2
    else:
        for count, own in zip(rows, "qkv", strict=True):
            weight = getattr(module, f"{own}_proj_weight")
            yield weight, f"{own}_proj_weight", count * weight.numel()
    # The module out_proj is never called, only its weight is used: it has no call to be hooked.
    yield module.out_proj.weight, "out_proj.weight", rows[0] * module.embed_dim**2


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if position < len(args) else kwargs[name]


def _rows(tensor: Tensor) -> int:  # vectors, whichever of its dimensions are batch and time
    return tensor.numel() // tensor.shape[-1]


_RULES: dict[type[nn.Module] | tuple[type[nn.Module], ...], Callable[..., Iterator[Use]]] = {
    (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d): _forward,
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): _conv_transpose,
    nn.RNNBase: _recurrent,
    nn.MultiheadAttention: _attention,
}
