"""A method of one's own: one sparse training in cycles, with a ticket at the end of each.

freetickets train method:Cycles --tickets 3 --model mlp-64
"""

from dataclasses import dataclass
from typing import ClassVar

from freetickets.methods import Phase, Plan, Run, Setting, Stretch
from freetickets.methods.method import ExploringMethod


@dataclass(frozen=True)
class Cycles(ExploringMethod):
    """Explores all the time, and collects where the learning rate has fallen to zero.

    Attributes:
        tickets: Number of cycles, and of tickets.
    """

    summary: ClassVar[str] = "one sparse training with cosine cycles, a ticket at the end of each"
    paper: ClassVar[str] = "-"

    def plan(self, setting: Setting) -> Plan:
        """One run of equal cycles."""
        recipe = setting.recipe
        scale = setting.scale(recipe.sparse_epochs)
        epochs = recipe.sparse_epochs * scale / self.tickets
        schedule = (Stretch(epochs, setting.initial_lr, 0.0, "cosine"),)
        exploring, end = (self.sparsity, self.exploration(setting)), (setting.collect,)
        numbers = range(1, self.tickets + 1)
        phases = tuple(Phase(f"cycle {n}", schedule, *exploring, at_end=end) for n in numbers)
        dense, run = recipe.dense_epochs * scale, Run(setting.seed, phases)
        return Plan(self.name, (run,), dense, self.sparse_options(recipe))
