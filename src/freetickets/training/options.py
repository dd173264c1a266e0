"""How networks are trained, beyond the plan: one object from the settings to the session."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..config import Config
from ..tasks import CLASSIFICATION, Task
from .optimizer import OptimizerOptions


@dataclass(frozen=True)
class TrainingOptions:
    """What a session needs to know besides its plan.

    Attributes:
        optimizer: How weights are updated.
        task: What networks learn.
        backend: How sparse layers are computed: see `Sparsifier`.
    """

    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    task: Task = CLASSIFICATION
    backend: str = "auto"

    @classmethod
    def of(cls, config: Config, task: Task) -> TrainingOptions:
        """Those of resolved settings."""
        optimizer = OptimizerOptions(
            config.optimizer,
            config.momentum or 0.0,
            bool(config.nesterov),
            weight_decay=config.weight_decay or 0.0,
            decay_norms=config.make_recipe().decay_norms,
            lr_factors=config.lr_factors or {},
        )
        return cls(optimizer, task, config.backend)
