"""Independent sparse trainings: of topologies that explore (DST), and of static ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .method import ExploringMethod, Setting, SparseMethod
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


@dataclass(frozen=True)
class Static(SparseMethod):
    """Sparse networks with random fixed topologies, trained independently."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "sparse networks with fixed topologies, trained independently"
    paper: ClassVar[str] = "Liu et al. 2022 (baseline)"

    def plan(self, setting: Setting) -> Plan:
        """Like DST, without exploration."""
        return self.independent_runs(setting, exploration=None)
