"""Sup-tickets: the tickets of a training's last cycles, merged into one network."""

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import FreeTicketsError
from ..reading import Count, Positive
from .events import Cost, Escape, Event, Prices
from .method import ExploringMethod, Rate, Setting, Share
from .plan import Phase, Plan, Run, Stretch

if TYPE_CHECKING:
    from ..training.session import Stage

_SHELF = "merged"


@dataclass(frozen=True)
class Merge(Event):
    """Averages the network with what was merged so far, and cuts the mean back, layer by layer.

    The network itself goes on as it is: what is merged is for testing only.
    """

    event = "merge"

    def happen(self, stage: "Stage") -> str | None:
        """Merges."""
        from ..sparsity.topology import select_top  # not above: plans are made without torch

        merged, before, count = stage.take(), stage.recall(_SHELF), 1
        if before is not None:
            count += int(before.info["merged"])
            state, topology = dict(merged.state), dict(merged.topology)
            for name, weight in merged.state.items():
                if weight.is_floating_point():
                    state[name] = before.state[name].lerp(weight, 1 / count)
            for name, mask in merged.topology.items():
                size, either = state[name].abs(), mask | before.topology[name]
                topology[name] = select_top(size, int(mask.sum()), either, stage.generator)
                state[name] = state[name] * topology[name]
            merged = stage.take(state, topology)
        merged.info["merged"] = count
        stage.remember(_SHELF, merged)
        return f"merged {count} tickets" if before is not None else None


@dataclass(frozen=True)
class CollectMerged(Event):
    """Collects what was merged, after estimating its BatchNorm statistics on some batches."""

    event = "collect"
    tickets = 1

    batches: int = 100

    def happen(self, stage: "Stage") -> str | None:
        """Estimates the statistics and collects."""
        import torch

        merged = stage.recall(_SHELF)
        assert merged is not None  # a plan merges before it collects
        network = stage.build(merged).eval()
        kind = torch.nn.modules.batchnorm._BatchNorm
        norms = [it for it in network.modules() if isinstance(it, kind) and it.track_running_stats]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean
            norm.train()
        with torch.no_grad():
            for inputs, _ in islice(stage.batches.whole().epoch(0), self.batches if norms else 0):
                network(inputs.to(stage.device))
        return stage.collect(stage.take(network.state_dict(), merged.topology))

    def cost(self, prices: Prices) -> Cost:
        """The batches, an epoch at most, go through the network once, forward."""
        samples = min(self.batches * prices.batch_size, prices.samples)
        return Cost(flops=prices.forward_flops * samples)


@dataclass(frozen=True)
class SupTickets(ExploringMethod):
    """Sparse trainings that each end in cycles, whose tickets are averaged into one network.

    Testing costs as much as one sparse network. Each cycle begins with one exploration and has no
    other; the weights at its end are averaged with the earlier ones and cut back to the sparsity.

    Attributes:
        tickets: Number of merged networks, each from a training of its own (M).
        cycles: Number of cycles whose tickets are merged.
        cycling: Share of the training that the cycles take together.
        cycle_rate: Share of the active weights that the exploration before a cycle replaces.
        low: Learning rate at both ends of a cycle, as a share of the initial one.
        high: Learning rate in the middle of a cycle, as a share of the initial one.
        norm_batches: Number of training batches on which to estimate BatchNorm's statistics at the
            end.
    """

    name = "sup-tickets"
    summary = "the tickets of a training's last cycles, merged into one network"
    paper = "Yin et al. 2022"

    tickets: Count = 1
    cycles: Count = 3
    cycling: Share = 0.1
    cycle_rate: Rate = 0.5
    low: Positive = 0.01
    high: Positive = 0.05
    norm_batches: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low > self.high:
            raise FreeTicketsError(f"low must be positive and at most high, not {self.low}")
        if self.structure != "unstructured":
            raise FreeTicketsError("sup-tickets cuts by magnitude: leave --structure out")

    def plan(self, setting: Setting) -> Plan:
        """M runs: train, then cycles, each merged with those before; the merged network is kept."""
        recipe, lr = setting.recipe, setting.initial_lr
        scale = setting.scale(recipe.sparse_epochs)
        half = recipe.sparse_epochs * scale * self.cycling / self.cycles / 2
        low, high = lr * self.low, lr * self.high
        cycle = (Stretch(half, low, high, "linear"), Stretch(half, high, low, "linear"))
        explore, collect = Escape(self.cycle_rate), CollectMerged(self.norm_batches)
        schedule = recipe.sparse_schedule(scale * (1 - self.cycling), lr)
        changes = self.exploration(setting), self.pruning(setting)
        train = Phase("train", schedule, self.sparsity, *changes, at_end=(explore,))
        cycles = [
            Phase(f"cycle {number}", cycle, self.sparsity, at_end=(Merge(), end))
            for number, end in enumerate([*[explore] * (self.cycles - 1), collect], start=1)
        ]
        runs = tuple(Run(setting.seed + i, (train, *cycles)) for i in range(self.tickets))
        return Plan(self.name, runs, recipe.dense_epochs * scale, self.sparse_options(recipe))
