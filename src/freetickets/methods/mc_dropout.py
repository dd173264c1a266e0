"""MC Dropout: one network that predicts several times, each time with other units dropped."""

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
class MCDropout(Method):
    """One network with dropout, in prediction too.

    Its own dropout layers are used: a Wide ResNet's between the two convolutions of each block. A
    network that has none gets one in front of each linear or convolutional layer but the first.

    Attributes:
        passes: Number of predictions to combine (M).
        dropout: Dropout rate, for dropout layers that have none of their own.
    """

    name: ClassVar[str] = "mc-dropout"
    summary: ClassVar[str] = "one network that keeps its dropout when it predicts"
    paper: ClassVar[str] = "Gal & Ghahramani 2016"

    passes: int = 30
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise FreeTicketsError(f"passes must be at least 1, not {self.passes}")
        if not 0 < self.dropout < 1:
            raise FreeTicketsError(f"dropout must lie between 0 and 1, not {self.dropout}")

    def plan(self, setting: Setting) -> Plan:
        """Trains like one dense network."""
        return replace(Dense().plan(setting), method=self.name)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Makes the dropout of a fresh network last."""
        from .networks.mc_dropout import MCDropoutNetwork  # not above: methods load without torch

        return MCDropoutNetwork(model, self.passes, self.dropout)
