"""The static sparse ensemble: sparse networks whose topologies never change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .method import Setting, SparseMethod
from .plan import Plan


@dataclass(frozen=True)
class Static(SparseMethod):
    """Sparse networks with random fixed topologies, trained independently."""

    name: ClassVar[str] = "static"
    summary: ClassVar[str] = "sparse networks with fixed topologies, trained independently"
    paper: ClassVar[str] = "Liu et al. 2022 (baseline)"

    def plan(self, setting: Setting) -> Plan:
        """Like DST, without exploration."""
        return self.independent_runs(setting, exploration=None)
