"""What decides which weights are pruned and which are grown: the higher the score, the better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import DivergedError, FreeTicketsError, check_known
from .named import SCORES as SCORES


@dataclass(frozen=True)
class WeightView:
    """What a score may look at: one layer at the moment of an exploration."""

    name: str
    weight: Tensor  # zero where inactive, except the values of a reserve
    mask: Tensor  # True where active
    gradient: Tensor | None  # the dense one, of the last batch or the mean over several
    momentum: Tensor | None  # a running mean of the dense gradients, if the score needs it
    generator: torch.Generator  # of all randomness, the same on every device and rank
    ever_active: Tensor | None = None  # True where the weight has been active at any time


ScoreFunction = Callable[[WeightView], Tensor]


@dataclass(frozen=True)
class Score:
    """A score function, and what it needs to be recorded: "gradient", "momentum" or nothing."""

    function: ScoreFunction
    needs: frozenset[str] = frozenset({"gradient"})

    def __post_init__(self) -> None:
        for need in self.needs:
            check_known("need of a score", need, ["gradient", "momentum"])

    def __call__(self, view: WeightView) -> Tensor:
        """Returns one score for each weight, in the weight's shape."""
        scores = self.function(view)
        if scores.shape != view.weight.shape:
            shapes = f"shape {tuple(scores.shape)}, the weight {tuple(view.weight.shape)}"
            raise FreeTicketsError(f"a score for {view.name!r} has {shapes}")
        if not scores.is_floating_point():
            scores = scores.float()
        if bool(torch.isnan(scores).any()):
            raise DivergedError(
                f"the scores of {view.name!r} contain NaN at an exploration: the loss diverged; "
                "lower the learning rate or check the data"
            )
        return scores


def _size(seen: Tensor | None, view: WeightView) -> Tensor:
    return torch.zeros_like(view.weight, dtype=torch.float32) if seen is None else seen.abs()


def magnitude(view: WeightView) -> Tensor:
    """|weight|: what pruning keeps by default."""
    return view.weight.detach().abs()


def gradient(view: WeightView) -> Tensor:
    """|gradient|: RigL's growth, where the loss falls fastest. No gradient counts as zero."""
    return _size(view.gradient, view)


def momentum(view: WeightView) -> Tensor:
    """|running mean of the gradient|: SNFS's growth."""
    return _size(view.momentum, view)


def random(view: WeightView) -> Tensor:
    """Random numbers: SET's growth. Needs no dense gradient."""
    # Drawn on the CPU, so that one seed gives one topology on every kind of device.
    return torch.rand(view.weight.shape, generator=view.generator).to(view.weight.device)


def random_unfired(view: WeightView) -> Tensor:
    """Random numbers, with weights that were never active before all others: ITOP's growth."""
    scores = random(view)
    return scores if view.ever_active is None else scores + ~view.ever_active


def magnitude_gradient(view: WeightView, share: float = 1.0) -> Tensor:
    """|weight| + share x |gradient|: what MEST keeps, so that a weight on the move may stay."""
    return magnitude(view) + share * gradient(view)


for _name, _score in {
    "magnitude": Score(magnitude, frozenset()),
    "gradient": Score(gradient),
    "momentum": Score(momentum, frozenset({"momentum"})),
    "random": Score(random, frozenset()),
    "random-unfired": Score(random_unfired, frozenset()),
    "magnitude-gradient": Score(magnitude_gradient),
}.items():
    SCORES.register(_name, _score)

ScoreLike = str | Score | ScoreFunction
GrowthLike = ScoreLike | Mapping[ScoreLike, float]


def as_score(score: ScoreLike) -> Score:
    """Turns a name or anyone's function into a score; of a function, one that needs gradients."""
    if isinstance(score, str):
        score = SCORES.find(score)
    return score if isinstance(score, Score) else Score(score)


def as_mixture(growth: GrowthLike) -> list[tuple[Score, float]]:
    """Turns a growth into its parts: the score, and the share of the new weights it chooses."""
    if not isinstance(growth, Mapping):
        return [(as_score(growth), 1.0)]
    total = sum(growth.values())
    if not growth or total <= 0 or min(growth.values()) < 0:
        raise FreeTicketsError(f"a mixed growth needs shares that are positive, not {dict(growth)}")
    return [(as_score(name), share / total) for name, share in growth.items()]
