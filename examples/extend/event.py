"""An event of one's own, and EDST with it: noise on the active weights instead of an escape.

freetickets train event:ShakenEDST --model mlp-64
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from freetickets import EDST
from freetickets.methods import Escape, Event, Plan, Setting
from freetickets.training.session import Stage


@dataclass(frozen=True)
class Shake(Event):
    """Adds noise to the active weights, as a share of their mean size."""

    size: float = 0.5

    event: ClassVar[str] = "shake"
    restarts_exploration: ClassVar[bool] = True

    @torch.no_grad()
    def happen(self, stage: Stage) -> str | None:
        """Shakes; the topology stays."""
        state = stage.network.state_dict()
        for name, mask in stage.session.topology.items():
            weight = state[name]
            noise = torch.randn(weight.shape, generator=stage.generator)
            state[name] = weight + noise * mask * self.size * weight[mask].abs().mean()
        stage.network.load_state_dict(state)
        return f"shook the active weights by {self.size:g} of their size"


@dataclass(frozen=True)
class ShakenEDST(EDST):
    """EDST that shakes its weights after each ticket, and leaves the topology to exploration.

    Attributes:
        shake: Size of the noise, as a share of the mean size of a layer's active weights.
    """

    shake: float = 0.5

    def plan(self, setting: Setting) -> Plan:
        """EDST's plan with another event."""
        plan, phases = super().plan(setting), []
        (run,) = plan.runs
        for phase in run.phases:
            shaken = [Shake(self.shake) if isinstance(e, Escape) else e for e in phase.at_end]
            phases.append(replace(phase, at_end=tuple(shaken)))
        return replace(plan, runs=(replace(run, phases=tuple(phases)),))
