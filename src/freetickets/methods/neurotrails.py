"""NeuroTrails: a shared trunk and sparse heads, explored together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..errors import FreeTicketsError
from .method import ExploringMethod, Setting
from .plan import Plan

if TYPE_CHECKING:
    from torch import nn

    from .members import MemberNetwork


@dataclass(frozen=True)
class NeuroTrails(ExploringMethod):
    """One sparse network that splits into heads; trunk and heads explore as one topology.

    Its loss is the mean of the heads' losses, its prediction the mean of their probabilities.

    Attributes:
        tickets: Number of such networks, each of a training of its own.
        members: Number of heads in each (M).
        shared: Number of stages that all heads share (default: a third of them).
    """

    name: ClassVar[str] = "neurotrails"
    summary: ClassVar[str] = "one sparse network with a shared trunk and a head for each member"
    paper: ClassVar[str] = "Grooten et al. 2025"

    tickets: int = 1
    members: int = 3
    shared: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 1:
            raise FreeTicketsError(f"members must be at least 1, not {self.members}")
        if self.shared is not None and self.shared < 0:
            raise FreeTicketsError(f"shared must be 0 or more stages, not {self.shared}")

    def plan(self, setting: Setting) -> Plan:
        """Trains like one sparse network from scratch."""
        return self.independent_runs(setting, self.exploration(setting), self.pruning(setting))

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Cuts a fresh network in two, and copies its end."""
        from .networks.treenet import TreeNetwork  # not above: methods load without torch

        return TreeNetwork(model, self.members, self.shared, own=2 / 3, alone=False)
