"""MIMO: one network that predicts several inputs at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ..errors import FreeTicketsError
from .dense import Dense
from .method import Method, Setting
from .plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from .members import MemberNetwork


@dataclass(frozen=True)
class MIMO(Method):
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

    name: ClassVar[str] = "mimo"
    summary: ClassVar[str] = "one network with several inputs and a head for each"
    paper: ClassVar[str] = "Havasi et al. 2021"

    members: int = 3
    input_repetition: float = 0.0
    batch_repetition: int = 1

    def __post_init__(self) -> None:
        for name in ("members", "batch_repetition"):
            if getattr(self, name) < 1:
                raise FreeTicketsError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.input_repetition <= 1:
            raise FreeTicketsError(
                f"input_repetition must lie between 0 and 1, not {self.input_repetition}"
            )

    def plan(self, setting: Setting) -> Plan:
        """Trains like one dense network."""
        return replace(Dense().plan(setting), method=self.name)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Widens the first layer and the last of a fresh network."""
        from .networks.mimo import MIMONetwork  # not above: methods load without torch

        return MIMONetwork(model, self.members, self.input_repetition, self.batch_repetition)
