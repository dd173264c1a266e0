"""The sparse trainings of the literature, by name: each is the same core with other parts."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

import yaml

from ..errors import FreeTicketsError, check_known
from ..registry import Registry
from .schedule import Exploration, GradualPruning

if TYPE_CHECKING:  # names are looked up without torch
    from .exploration import Redistribution, Scope
    from .score import Score, ScoreFunction

_PASSED_ON = (
    "prune", "grow", "prune_scope", "redistribute", "regrown_value", "reserve", "structure",
)  # fmt: skip
# Gradual pruning ends here, as a share of the training: what is left then has time to settle.
PRUNED_AT = 0.75


@dataclass(frozen=True)
class SparseParts:
    """What one method of sparse training is made of.

    `explores` says whether the topology is explored at all, `gradual` whether the sparsity is
    reached by gradual pruning, starting at `initial_sparsity`. The others are arguments of the
    `Sparsifier`.
    """

    summary: str
    paper: str
    prune: str = "magnitude"
    grow: str = "gradient"
    prune_scope: Scope = "layer"
    redistribute: Redistribution | None = None
    regrown_value: Literal["zero", "keep"] = "zero"
    explores: bool = True
    gradual: bool = False
    initial_sparsity: float = 0.0
    reserve: float = 0.0
    structure: str = "unstructured"

    def options(
        self, sparsity: float, steps: int, *, rate: float = 0.5, interval: int | None = None
    ) -> dict[str, Any]:
        """Returns the arguments of a `Sparsifier` for a training of this many steps.

        The first exploration replaces a share `rate` of the active weights; the rate then falls to
        zero along a cosine. `interval` (if not given, a hundredth of the training) is the number of
        steps between two explorations or prunings, and between the last exploration and the end.
        """
        if steps < 1:
            raise FreeTicketsError(f"steps must be at least 1, not {steps}")
        interval = max(1, steps // 100) if interval is None else interval
        start = min(self.initial_sparsity, sparsity) if self.gradual else sparsity
        options = {name: getattr(self, name) for name in _PASSED_ON}
        options |= {"sparsity": start, "exploration": None, "pruning": None}
        if self.explores:
            stop = max(0, steps - interval)
            options["exploration"] = Exploration(rate, interval, "cosine", steps=steps, stop=stop)
        if self.gradual:
            end = max(1, round(PRUNED_AT * steps))
            options["pruning"] = GradualPruning(sparsity, start, end=end, interval=interval)
        return options


# The names of our scores and criteria, which can't be looked at without torch.
SCORE_NAMES = (
    "magnitude", "gradient", "momentum", "random", "random-unfired", "magnitude-gradient",
)  # fmt: skip
SCORES: Registry[Score | ScoreFunction] = Registry("score", "scores")
CRITERION_NAMES = ("snip", "grasp", "synflow", "magnitude", "random")

_METHODS = yaml.safe_load((resources.files(__package__) / "methods.yaml").read_text("utf-8"))


def _check_parts(thing: object) -> None:
    if not isinstance(thing, SparseParts):
        raise FreeTicketsError(f"an explorer must be made of SparseParts, not {thing!r}")


SPARSE_METHODS: Registry[SparseParts] = Registry(
    "sparse method",
    "explorers",
    {name: SparseParts(**parts) for name, parts in _METHODS.items()},
    _check_parts,
)


def sparse_method(name: str) -> SparseParts:
    """Looks the parts of a method up."""
    return SPARSE_METHODS.find(name)


def check_score_name(name: str) -> None:
    """Raises unless a score has this name; ours may not have been registered yet."""
    check_known("score", name, [*SCORE_NAMES, *SCORES])
