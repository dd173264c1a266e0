"""The DST ensemble: independent dynamic sparse trainings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .method import ExploringMethod, Setting
from .plan import Plan


@dataclass(frozen=True)
class DST(ExploringMethod):
    """Sparse networks that explore their topologies, trained independently."""

    name: ClassVar[str] = "dst"
    summary: ClassVar[str] = "sparse networks that explore, trained independently"
    paper: ClassVar[str] = "Liu et al. 2022"

    def plan(self, setting: Setting) -> Plan:
        """One run for each ticket, with different seeds, topologies and data orders."""
        return self.independent_runs(setting, self.exploration(setting), self.pruning(setting))
