"""Methods of dense trainings: one network, several, cycles of one, or pruned at the end."""

from dataclasses import dataclass

from ..errors import FreeTicketsError
from ..reading import Count, Positive
from .events import Collect, Prune
from .method import Method, Setting, Share
from .plan import Phase, Plan, Run, SparseOptions, Stretch

# The usual schedule of one dense training for FGE: the full rate for half of it, then a straight
# line down to a hundredth, reached after nine tenths.
_FALL_BEGINS, _FALL_ENDS, _FLOOR = 0.5, 0.9, 0.01


@dataclass(frozen=True)
class Dense(Method):
    """One dense network.

    Attributes:
        tickets: Number of networks to train independently (M).
    """

    name = "dense"
    summary = "one dense network"

    tickets: Count = 1

    def plan(self, setting: Setting) -> Plan:
        """One run for each network, with different seeds."""
        recipe = setting.recipe
        scale = setting.scale(recipe.dense_epochs)
        schedule = recipe.dense_schedule(scale, setting.initial_lr)
        phase = Phase("train", schedule, at_end=(setting.collect,))
        runs = tuple(Run(setting.seed + i, (phase,)) for i in range(self.tickets))
        return Plan(self.name, runs, recipe.dense_epochs * scale)


@dataclass(frozen=True)
class DenseEnsemble(Dense):
    """Several dense networks, trained independently."""

    name = "dense-ensemble"
    summary = "several dense networks, trained independently"
    paper = "Lakshminarayanan et al. 2017"

    tickets: Count = 4


@dataclass(frozen=True)
class Snapshot(Method):
    """One dense training whose learning rate falls and restarts, once for each ticket.

    Attributes:
        tickets: Number of snapshots to take (M).
        budget: Length of the training, as a multiple of one dense training; the paper's "1B" is
            0.8: 200 epochs against 250.
    """

    name = "snapshot"
    summary = "one dense training with cosine cycles, a member at the end of each"
    paper = "Huang et al. 2017"

    tickets: Count = 12
    budget: Positive = 0.8

    def plan(self, setting: Setting) -> Plan:
        """One run: M cycles of the same length, each a cosine from the full rate to zero."""
        recipe = setting.recipe
        scale = setting.scale(self.budget * recipe.dense_epochs)
        epochs = self.budget * recipe.dense_epochs * scale / self.tickets
        cycle = (Stretch(epochs, setting.initial_lr, 0.0, "cosine"),)
        names = [f"cycle {number}" for number in range(1, self.tickets + 1)]
        phases = tuple(Phase(name, cycle, at_end=(Collect(),)) for name in names)
        return Plan(self.name, (Run(setting.seed, phases),), recipe.dense_epochs * scale)


@dataclass(frozen=True)
class FGE(Method):
    """One dense training, then cycles between two small learning rates; each low gives a ticket.

    Attributes:
        tickets: Number of networks to collect (M).
        budget: Length of the training, as a multiple of one dense training; the paper's "1B" is
            0.8: 200 epochs against 250.
        pretraining: Share of the training that comes before the first cycle.
        high: Highest learning rate of a cycle, as a share of the initial one.
        low: Lowest learning rate of a cycle, as a share of the initial one.
    """

    name = "fge"
    summary = "one dense training that ends in short cycles, a member in each"
    paper = "Garipov et al. 2018"

    tickets: Count = 5
    budget: Positive = 0.8
    pretraining: Share = 0.8
    high: Positive = 0.5
    low: Positive = 0.005

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise FreeTicketsError(f"low must be below high, not {self.low} and {self.high}")

    def plan(self, setting: Setting) -> Plan:
        """One run: pretraining, then M cycles, the last of which ends at its minimum."""
        recipe, lr = setting.recipe, setting.initial_lr
        scale = setting.scale(self.budget * recipe.dense_epochs)
        epochs = self.budget * recipe.dense_epochs * scale
        # A network is collected in the middle of a cycle, where the rate is lowest.
        half = epochs * (1 - self.pretraining) / (2 * self.tickets - 1)
        high, low = lr * self.high, lr * self.low
        fall, rise = Stretch(half, high, low, "approach"), Stretch(half, low, high, "approach")
        # The usual schedule, cut off where the cycles begin.
        flat, fallen = min(self.pretraining, _FALL_BEGINS), min(self.pretraining, _FALL_ENDS)
        usual = [Stretch(flat * epochs, lr)]
        if fallen > flat:
            share = (fallen - flat) / (_FALL_ENDS - _FALL_BEGINS)
            end = lr * (1 - share * (1 - _FLOOR))
            usual.append(Stretch((fallen - flat) * epochs, lr, end, "linear"))
        if self.pretraining > fallen:
            usual.append(Stretch((self.pretraining - fallen) * epochs, lr * _FLOOR))
        phases = [Phase("pretrain", tuple(usual))]
        for number in range(1, self.tickets + 1):
            schedule = (fall,) if number == 1 else (rise, fall)
            phases.append(Phase(f"cycle {number}", schedule, at_end=(Collect(),)))
        return Plan(self.name, (Run(setting.seed, tuple(phases)),), recipe.dense_epochs * scale)


@dataclass(frozen=True)
class PruneFineTune(Method):
    """Dense networks, trained independently; each is pruned by magnitude, then trained further.

    Attributes:
        tickets: Number of networks to train (M).
        sparsity: Share of the weights that are zero in each ticket (S).
        finetune: Length of the fine-tuning, as a multiple of one dense training.
        finetune_lr: Constant learning rate of the fine-tuning, as a share of the initial one.
        exclude: Layers to keep dense, as patterns that match their names.
    """

    name = "pf"
    summary = "dense networks, pruned by one global threshold and fine-tuned"
    paper = "Han et al. 2015"

    tickets: Count = 3
    sparsity: Share = 0.8
    finetune: Positive = 1.0
    finetune_lr: Positive = 0.01
    exclude: tuple[str, ...] = ()

    def plan(self, setting: Setting) -> Plan:
        """M runs: train dense, prune, fine-tune, collect.

        It is not known in advance which layers one threshold spares, so the costs assume that all
        layers keep the same share.
        """
        recipe, lr = setting.recipe, setting.initial_lr
        scale = setting.scale(recipe.dense_epochs * (1 + self.finetune))
        dense = recipe.dense_epochs * scale
        train = Phase("train", recipe.dense_schedule(scale, lr), at_end=(Prune(self.sparsity),))
        slow = (Stretch(self.finetune * recipe.dense_epochs * scale, lr * self.finetune_lr),)
        tune = Phase("fine-tune", slow, self.sparsity, at_end=(setting.collect,))
        runs = tuple(Run(setting.seed + i, (train, tune)) for i in range(self.tickets))
        options = SparseOptions(distribution="uniform", exclude=self.exclude)
        return Plan(self.name, runs, dense, options, trainings=2 * self.tickets)
