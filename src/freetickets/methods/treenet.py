"""TreeNet: members that share their first stages."""

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
class TreeNet(Method):
    """One network that splits into branches, which are trained together, each with its own loss.

    Any network has stages whose code can be traced: a layer is one where all that follows depends
    on its output alone, else the whole block around which something skips.

    Attributes:
        members: Number of branches (M).
        shared: Number of stages that all branches share, 0 for separate networks (default: all
            except the last third, or the last two if that is more).
    """

    name: ClassVar[str] = "treenet"
    summary: ClassVar[str] = "one network whose last stages each member has for itself"
    paper: ClassVar[str] = "Lee et al. 2015"

    members: int = 3
    shared: int | None = None

    def __post_init__(self) -> None:
        if self.members < 1:
            raise FreeTicketsError(f"members must be at least 1, not {self.members}")
        if self.shared is not None and self.shared < 0:
            raise FreeTicketsError(f"shared must be 0 or more stages, not {self.shared}")

    def plan(self, setting: Setting) -> Plan:
        """Trains like one dense network; the paper calls that one and a half runs."""
        runs = self.members if self.shared == 0 else 1.5
        return replace(Dense().plan(setting), method=self.name, trainings=runs)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Cuts a fresh network in two, and copies its end."""
        from .networks.treenet import TreeNetwork  # not above: methods load without torch

        return TreeNetwork(model, self.members, self.shared)
