"""Methods whose members share one network. The networks need torch; methods load without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from ..reading import Count, must
from .dense import Dense
from .method import Method, Rate, Setting, Share
from .plan import Plan
from .sparse import DST

if TYPE_CHECKING:
    from torch import nn

    from .members import MemberNetwork

Examples = Annotated[str, must("be 'tiled' or 'split'", ("tiled", "split").__contains__)]
Stages = Annotated[int, must("be 0 or more stages", lambda number: number >= 0)]


class OneNetwork(Method):
    """A method that makes one network of several members, and trains it like a dense one."""

    def plan(self, setting: Setting) -> Plan:
        """Trains like one dense network."""
        return replace(Dense().plan(setting), method=self.name)


@dataclass(frozen=True)
class MCDropout(OneNetwork):
    """One network with dropout, in prediction too.

    Its own dropout layers are used: a Wide ResNet's between the two convolutions of each block. A
    network that has none gets one in front of each linear or convolutional layer but the first.

    Attributes:
        passes: Number of predictions to combine (M).
        dropout: Dropout rate, for dropout layers that have none of their own.
    """

    name = "mc-dropout"
    summary = "one network that keeps its dropout when it predicts"
    paper = "Gal & Ghahramani 2016"

    passes: Count = 30
    dropout: Share = 0.1

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Makes the dropout of a fresh network last."""
        from .networks.mc_dropout import MCDropoutNetwork

        return MCDropoutNetwork(model, self.passes, self.dropout)


@dataclass(frozen=True)
class MIMO(OneNetwork):
    """One network that learns to predict several inputs at once, and is then given one for all.

    The inputs are side by side in the channels if the first layer is a convolution, on the last
    axis (features, of each token in a sequence) if it is linear. The loss is the mean over
    the heads, so that what they share learns at the recipe's rate; its paper takes the sum.

    Attributes:
        members: Number of inputs and heads of the network (M).
        input_repetition: Share of the training batch in which all heads see the same sample.
        batch_repetition: How many times each sample is in a training batch; training costs that
            many times as much.
    """

    name = "mimo"
    summary = "one network with several inputs and a head for each"
    paper = "Havasi et al. 2021"

    members: Count = 3
    input_repetition: Rate = 0.0
    batch_repetition: Count = 1

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Widens the first layer and the last of a fresh network."""
        from .networks.mimo import MIMONetwork

        return MIMONetwork(model, self.members, self.input_repetition, self.batch_repetition)


@dataclass(frozen=True)
class BatchEnsemble(OneNetwork):
    """One network whose layers have a weight W ∘ r sᵀ for each member: a shared W, and signs.

    Each linear and convolutional layer is replaced. Norms are shared, as in the paper, and so are
    the projections inside `nn.MultiheadAttention`, which are no layers of their own.

    Attributes:
        members: Number of members (M).
        examples: tiled (each member trains on the whole batch) or split (each on its own part).
    """

    name = "batch-ensemble"
    summary = "one network with a rank-one factor for each member"
    paper = "Wen et al. 2020"

    members: Count = 4
    examples: Examples = "tiled"

    def plan(self, setting: Setting) -> Plan:
        """Counts for a training of each member."""
        return replace(super().plan(setting), trainings=self.members)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Replaces the layers of a fresh network."""
        from .networks.batch_ensemble import BatchEnsembleNetwork

        return BatchEnsembleNetwork(model, self.members, tiled=self.examples == "tiled")


@dataclass(frozen=True)
class TreeNet(OneNetwork):
    """One network that splits into branches, which are trained together, each with its own loss.

    Any network has stages whose code can be traced: a layer is one where all that follows depends
    on its output alone, else the whole block around which something skips.

    Attributes:
        members: Number of branches (M).
        shared: Number of stages that all branches share, 0 for separate networks (default: all
            except the last third, or the last two if that is more).
    """

    name = "treenet"
    summary = "one network whose last stages each member has for itself"
    paper = "Lee et al. 2015"

    members: Count = 3
    shared: Stages | None = None

    def plan(self, setting: Setting) -> Plan:
        """Counts for one and a half, says the paper, unless they are separate networks."""
        trainings = self.members if self.shared == 0 else 1.5
        return replace(super().plan(setting), trainings=trainings)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Cuts a fresh network in two, and copies its end."""
        from .networks.treenet import TreeNetwork

        return TreeNetwork(model, self.members, self.shared, own=1 / 3, alone=True)


@dataclass(frozen=True)
class NeuroTrails(DST):
    """One sparse network that splits into heads; trunk and heads explore as one topology.

    Its loss is the mean of the heads' losses, its prediction the mean of their probabilities.

    Attributes:
        tickets: Number of such networks, each of a training of its own.
        members: Number of heads in each (M).
        shared: Number of stages that all heads share (default: a third of them).
    """

    name = "neurotrails"
    summary = "one sparse network with a shared trunk and a head for each member"
    paper = "Grooten et al. 2025"

    tickets: Count = 1
    members: Count = 3
    shared: Stages | None = None

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Cuts a fresh network in two, and copies its end."""
        from .networks.treenet import TreeNetwork

        return TreeNetwork(model, self.members, self.shared, own=2 / 3, alone=False)
