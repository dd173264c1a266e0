"""The ledger: what a plan costs, phase by phase, against one dense model.

FLOPs are counted as RigL does: 3 x forward for each sample trained on, each layer scaled by its
density. Dense gradients for growth, which the paper leaves out (less than 0.1 %), and those of a
reserve stand in a column of their own. Validation and evaluation are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from ..methods.events import Prices
from ..methods.members import MemberNetwork
from ..methods.plan import Plan, SparseOptions
from ..methods.timeline import Span, Timeline
from ..reading import Count, Natural, NotNegative, Text
from ..sparsity.layers import select_weights
from ..sparsity.score import as_score
from ..sparsity.structure import parse_structure
from .flops import count_macs, forward_flops, train_flops


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
        relative = ("relative_flops", "relative_growth_flops", "relative_test_flops")
        return {name: getattr(self, name) for name in (*relative, "flops", "seconds")} | asdict(
            self
        )


def _multiple(cost: float, unit: float) -> float:
    # A network whose layers are all of a kind that is not counted costs nothing.
    return cost / unit if unit else math.nan


def price(
    plan: Plan,
    model: nn.Module,
    input_shape: tuple[int, ...],
    *,
    train_size: int,
    batch_size: int,
    steps_per_epoch: int,
    dense_epochs: float | None = None,
    transformed: nn.Module | None = None,
    integers: bool = False,
) -> Ledger:
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
                    train_flops(share * forward) * samples + sum(cost.flops for cost in costs),
                    growth * batch_size + sum(cost.growth_flops for cost in costs),
                )
            )
    dense_epochs = plan.dense_epochs if dense_epochs is None else dense_epochs
    return Ledger(
        tuple(phases),
        plan.tickets,
        plan.tickets * members,
        plan.trainings or len(plan.runs),
        dense_epochs,
        train_flops(single.forward_flops) * train_size * dense_epochs,
        single.forward_flops,
        plan.tickets * last.forward_flops,
        single.parameters,
        last.parameters,
        plan.tickets * last.bytes,
    )


def _mean_forward_flops(at: Callable[[float], _Network], timeline: Timeline, span: Span) -> float:
    """FLOPs of one sample forward, in the mean of a phase's steps."""
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
