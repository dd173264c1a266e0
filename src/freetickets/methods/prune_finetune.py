"""The prune-and-fine-tune ensemble: dense trainings, pruned at their ends and trained further."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ..errors import FreeTicketsError
from .events import Prune
from .method import Method, Setting, check_sparsity, check_tickets
from .plan import Phase, Plan, Run, SparseOptions, Stretch


@dataclass(frozen=True)
class PruneFineTune(Method):
    """Dense networks, trained independently; each loses its smallest weights, then trains on.

    Attributes:
        tickets: Number of networks to train (M).
        sparsity: Share of the weights that are zero in each ticket (S).
        finetune: Length of the fine-tuning, as a multiple of one dense training.
        finetune_lr: Constant learning rate of the fine-tuning, as a share of the initial one.
        exclude: Layers to keep dense, as patterns that match their names.
    """

    name: ClassVar[str] = "pf"
    summary: ClassVar[str] = "dense networks, pruned by one global threshold and fine-tuned"
    paper: ClassVar[str] = "Han et al. 2015"

    tickets: int = 3
    sparsity: float = 0.8
    finetune: float = 1.0
    finetune_lr: float = 0.01
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_tickets(self.tickets)
        check_sparsity(self.sparsity)
        for name in ("finetune", "finetune_lr"):
            if not 0 < getattr(self, name) < math.inf:
                raise FreeTicketsError(f"{name} must be positive, not {getattr(self, name)}")

    def plan(self, setting: Setting) -> Plan:
        """M runs: train dense, prune, fine-tune, collect.

        Which layers one threshold spares is not known before: costs are those of layers that all
        keep the same share.
        """
        recipe, lr = setting.recipe, setting.initial_lr
        scale = setting.scale(recipe.dense_epochs * (1 + self.finetune))
        train = Phase("train", recipe.dense_schedule(scale, lr), at_end=(Prune(self.sparsity),))
        tune = Phase(
            "fine-tune",
            (Stretch(self.finetune * recipe.dense_epochs * scale, lr * self.finetune_lr),),
            self.sparsity,
            at_end=(setting.collect,),
        )
        runs = tuple(Run(setting.seed + i, (train, tune)) for i in range(self.tickets))
        options = SparseOptions(distribution="uniform", exclude=self.exclude)
        dense = recipe.dense_epochs * scale
        return Plan(self.name, runs, dense, options, trainings=2 * self.tickets)
