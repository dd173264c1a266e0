"""BatchEnsemble: members that share all weights but a rank-one factor each."""

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
class BatchEnsemble(Method):
    """One network whose layers have a weight W ∘ r sᵀ for each member: a shared W, and signs.

    Each linear and convolutional layer is replaced. Norms are shared, as in the paper, and so are
    the projections inside `nn.MultiheadAttention`, which are no layers of their own.

    Attributes:
        members: Number of members (M).
        examples: tiled (each member trains on the whole batch) or split (each on its own part).
    """

    name: ClassVar[str] = "batch-ensemble"
    summary: ClassVar[str] = "one network with a rank-one factor for each member"
    paper: ClassVar[str] = "Wen et al. 2020"

    members: int = 4
    examples: str = "tiled"

    def __post_init__(self) -> None:
        if self.members < 1:
            raise FreeTicketsError(f"members must be at least 1, not {self.members}")
        if self.examples not in ("tiled", "split"):
            raise FreeTicketsError(f"examples must be 'tiled' or 'split', not {self.examples!r}")

    def plan(self, setting: Setting) -> Plan:
        """Trains like one dense network."""
        return replace(Dense().plan(setting), method=self.name, trainings=self.members)

    def transform(self, model: nn.Module) -> MemberNetwork:
        """Replaces the layers of a fresh network."""
        from .networks.batch_ensemble import BatchEnsembleNetwork  # methods load without torch

        return BatchEnsembleNetwork(model, self.members, tiled=self.examples == "tiled")
