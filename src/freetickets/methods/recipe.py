"""Recipes: how a family of data sets is trained; `recipes.yaml` has the paper's set-up numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ..errors import check_known
from ..reading import parse_yaml, read_fields
from .plan import Stretch


@dataclass(frozen=True)
class Recipe:
    """The settings that all methods share on one family of data sets.

    Epochs are those of the full recipe; `--epochs` scales them all together. A `cycle` is the share
    of `lr` at which one cycle over the whole training begins: straight up to `lr`, straight down to
    0. EDST's exploration stays up, and each refinement comes down on its own.
    """

    name: str  # what a data set calls it
    batch_size: int = 128  # over all devices
    lr: float = 0.1  # the initial learning rate, or the peak of a cycle
    momentum: float = 0.9
    nesterov: bool = False
    lr_factors: Mapping[str, float] = field(default_factory=dict)  # as in `Config`
    weight_decay: float = 5e-4
    decay_norms: bool = True  # whether norms and biases decay too
    label_smoothing: float = 0.0
    augmentations: Mapping[str, str] = field(default_factory=dict)  # in place of a data set's own
    warmup: int = 0  # epochs on the way up to `lr`: a staircase, or the beginning of a cycle
    cycle: float | None = None  # None for a rate that falls in steps (the decays)
    dense_epochs: int = 250  # the length of one dense training, the unit of all costs
    dense_decays: tuple[int, ...] = (125, 187)  # after these epochs the rate falls to a tenth
    sparse_epochs: int = 250  # the length of one sparse training from scratch
    sparse_decays: tuple[int, ...] = (125, 187)
    explore_epochs: int = 150  # EDST's exploration phase
    refine: tuple[tuple[int, float], ...] = ((50, 0.1), (50, 0.01))  # epochs, and shares of `lr`
    interval: int = 1000  # steps between two explorations (ΔT)
    rate_schedule: str = "constant"  # of the exploration rate, down to `final_rate`
    final_rate: float = 0.0
    regrown_value: str = "zero"  # what a weight is worth that is pruned and grown again at once
    validation: float = 0.1  # the share of the training data held out

    def dense_schedule(self, scale: float, lr: float) -> tuple[Stretch, ...]:
        """The learning rates of one dense training."""
        return self._training(self.dense_epochs, self.dense_decays, scale, lr)

    def sparse_schedule(self, scale: float, lr: float) -> tuple[Stretch, ...]:
        """The learning rates of one sparse training from scratch."""
        return self._training(self.sparse_epochs, self.sparse_decays, scale, lr)

    def explore_schedule(self, scale: float, lr: float) -> tuple[Stretch, ...]:
        """The learning rates of EDST's exploration phase."""
        return (*self._warmup(scale, lr), Stretch((self.explore_epochs - self.warmup) * scale, lr))

    def refine_schedule(self, scale: float, lr: float, height: float | None) -> tuple[Stretch, ...]:
        """The learning rates of one EDST refinement, which begins at `height * lr` if given."""
        higher = 1.0 if height is None else height / self.refine[0][1]
        shape = "constant" if self.cycle is None else "linear"
        return tuple(
            Stretch(epochs * scale, lr * share * higher, shape=shape)
            for epochs, share in self.refine
        )

    def _training(
        self, epochs: int, decays: tuple[int, ...], scale: float, lr: float
    ) -> tuple[Stretch, ...]:
        ends = pairwise([self.warmup, *decays, epochs])
        falls = [Stretch((end - at) * scale, lr * 0.1**i) for i, (at, end) in enumerate(ends)]
        if self.cycle is not None:
            falls = [Stretch((epochs - self.warmup) * scale, lr, 0.0, "linear")]
        return (*self._warmup(scale, lr), *falls)

    def _warmup(self, scale: float, lr: float) -> list[Stretch]:
        if self.cycle is not None:
            return [Stretch(self.warmup * scale, lr * self.cycle, lr, "linear")]
        # The authors' staircase: epoch e of a warm-up of w runs at (e + 1) / (w + 1) of the rate.
        return [Stretch(scale, lr * (e + 1) / (self.warmup + 1)) for e in range(self.warmup)]


_TEXT = Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8")
RECIPES = {
    name: Recipe(name, **read_fields(Recipe, told))
    for name, told in parse_yaml(_TEXT, "recipes.yaml").items()
}


def get_recipe(name: str) -> Recipe:
    """Looks a recipe up by its name.

    Example:
        >>> get_recipe("cifar").dense_epochs
        250
    """
    check_known("recipe", name, RECIPES)
    return RECIPES[name]
