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
    """A method that makes one network with several members, and trains it like a dense one."""

    def plan(self, setting: Setting) -> Plan:
        """Trains like one dense network."""
        return replace(Dense().plan(setting), method=self.name)


@dataclass(frozen=True)
class MCDropout(OneNetwork):
    """One network that uses dropout in prediction too.

    The network's own dropout layers are used; a Wide ResNet has them between the two convolutions
    of each block. A network without any gets one before each linear or convolutional layer except
    the first.

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
        """Keeps the dropout of a fresh network active in prediction."""
        from .networks.mc_dropout import MCDropoutNetwork

        return MCDropoutNetwork(model, self.passes, self.dropout)


@dataclass(frozen=True)
class MIMO(OneNetwork):
    """One network trained to predict several inputs at once, then given the same one several times.

    The inputs are joined along the channels if the first layer is a convolution, and along the last
    axis (features, of each token in a sequence) if it is linear. The loss is the mean over the
    heads, so that the shared layers learn at the recipe's rate; the MIMO paper takes the sum.

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
        """Widens the first and the last layer of a fresh network."""
        from .networks.mimo import MIMONetwork

        return MIMONetwork(model, self.members, self.input_repetition, self.batch_repetition)


@dataclass(frozen=True)
class BatchEnsemble(OneNetwork):
    """One network whose layers have a weight W ∘ r sᵀ for each member, with only W shared.

    Each linear and convolutional layer is replaced. Norms are shared, as in the paper, and so are
    the projections inside `nn.MultiheadAttention`, which are not layers of their own.

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
        """Trains like one dense network; counts as one training for each member."""
        return replace(super().plan(setting), trainings=self.members)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Replaces the layers of a fresh network."""
        from .networks.batch_ensemble import BatchEnsembleNetwork

        return BatchEnsembleNetwork(model, self.members, tiled=self.examples == "tiled")


@dataclass(frozen=True)
class TreeNet(OneNetwork):
    """One network that splits into branches, which are trained together, each with its own loss.

    Any network whose code can be traced has stages: a layer is a stage if everything after it
    depends on its output alone; otherwise the whole block that a skip connection spans is one.

    Attributes:
        members: Number of branches (M).
        shared: Number of stages that all branches share, 0 for separate networks (default: all
            except the last third, or the last two if that is more).
    """

    name = "treenet"
    summary = "one network whose members each have their own last stages"
    paper = "Lee et al. 2015"

    members: Count = 3
    shared: Stages | None = None

    def plan(self, setting: Setting) -> Plan:
        """Counts as one and a half trainings, as in the paper, unless no stage is shared."""
        trainings = self.members if self.shared == 0 else 1.5
        return replace(super().plan(setting), trainings=trainings)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Cuts a fresh network in two, and copies its second part."""
        from .networks.treenet import TreeNetwork

        return TreeNetwork(model, self.members, self.shared, own=1 / 3, alone=True)


@dataclass(frozen=True)
class NeuroTrails(DST):
    """One sparse network that splits into heads; trunk and heads explore as one topology.

    Its loss is the mean of the heads' losses, its prediction the mean of their probabilities.

    Attributes:
        tickets: Number of such networks, each from a training of its own.
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
        """Cuts a fresh network in two, and copies its second part."""
        from .networks.treenet import TreeNetwork

        return TreeNetwork(model, self.members, self.shared, own=2 / 3, alone=False)
