"""What an exploration or a pruning decides: which weights survive, and which are grown."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from ..errors import FreeTicketsError
from .distribution import round_to
from .score import GrowthLike, ScoreLike, WeightView, as_mixture, as_score
from .structure import Structure, Unstructured
from .topology import select_across, select_top

Scope = Literal["layer", "global", "threshold"]
Redistribution = Literal["momentum", "survivors"]

# DSR's own: where its threshold starts, and how far from the wanted number it may prune.
_FIRST_THRESHOLD = 1e-3
_TOLERANCE = 0.1


class Explorer:
    """Chooses what survives and what grows; the weights themselves are changed by others.

    Args:
        prune: The score by which active weights are kept.
        grow: The score by which inactive weights are chosen, or a mixture.
        scope: What is weakest where: in each layer, in the whole network, or below a threshold.
        redistribute: How many of the new weights each layer gets.
        structure: What the topologies have, and keep; only with scope "layer", one growth score
            and no redistribution.

    Attributes:
        threshold: Where scope "threshold" prunes next; it follows the weights as they grow.
    """

    def __init__(
        self,
        prune: ScoreLike,
        grow: GrowthLike,
        scope: Scope,
        redistribute: Redistribution | None,
        structure: Structure = Unstructured(),  # noqa: B008
    ) -> None:
        if scope not in ("layer", "global", "threshold"):
            raise FreeTicketsError(
                f"prune_scope must be 'layer', 'global' or 'threshold', not {scope!r}"
            )
        if redistribute not in (None, "momentum", "survivors"):
            raise FreeTicketsError(
                f"redistribute must be 'momentum', 'survivors' or None, not {redistribute!r}"
            )
        self.threshold = _FIRST_THRESHOLD
        self.prune_score = as_score(prune)
        self._grow = as_mixture(grow)
        self._scope = scope
        self._redistribute = redistribute
        self._structure = structure

    @property
    def layerwise(self) -> bool:
        """Whether each layer is pruned by itself."""
        return self._scope == "layer"

    @property
    def needs(self) -> frozenset[str]:
        """What is to be recorded: "gradient", "momentum", both or nothing."""
        needs = self.prune_score.needs.union(*(score.needs for score, _ in self._grow))
        return needs | {"momentum"} if self._redistribute == "momentum" else needs

    def explore(self, views: list[WeightView], rate: float) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the survivors and the new topology of each layer, as large in all as the old."""
        if self._scope == "threshold":
            kept = [view.mask & (self.prune_score(view) >= self.threshold) for view in views]
        else:
            kept = self._survivors(views, rate)
        counts = growth_counts(views, kept, self._redistribute)
        masks = [
            self._grown(view, stay, count)
            for view, stay, count in zip(views, kept, counts, strict=True)
        ]
        self._adapt_threshold(sum(counts), rate * sum(int(view.mask.sum()) for view in views))
        return kept, masks

    def prune(self, views: list[WeightView], counts: list[int] | int) -> list[Tensor]:
        """Returns the strongest weights: a count for each layer, or one for all by one threshold.

        A layer that has no more than its count keeps all its weights.
        """
        scores = [self.prune_score(view) for view in views]
        masks = [view.mask for view in views]
        active = [int(mask.sum()) for mask in masks]
        if isinstance(counts, int):
            return select_across(scores, min(counts, sum(active)), masks, views[0].generator)
        return [
            select_top(score, min(count, nonzeros), view.mask, view.generator)
            for score, count, nonzeros, view in zip(scores, counts, active, views, strict=True)
        ]

    def _survivors(self, views: list[WeightView], rate: float) -> list[Tensor]:
        """Which active weights stay: a share 1 - rate of each layer, or of all together."""
        scores = [self.prune_score(view) for view in views]
        masks = [view.mask for view in views]
        generator = views[0].generator
        if self._scope == "global":
            count = _kept(sum(int(mask.sum()) for mask in masks), rate)
            return select_across(scores, count, masks, generator)
        return [
            self._structure.survive(score, _kept(int(mask.sum()), rate), mask, generator)
            for score, mask in zip(scores, masks, strict=True)
        ]

    def _grown(self, view: WeightView, kept: Tensor, count: int) -> Tensor:
        """The survivors and `count` new weights, chosen by each growth score in turn.

        Weights pruned a moment ago are candidates like all other inactive ones, as in the paper.
        """
        if not isinstance(self._structure, Unstructured):
            ((score, _),) = self._grow
            total = int(kept.sum()) + count
            return self._structure.refill(score(view), kept, view.generator, total)
        mask = kept.clone()
        shares = _split(count, [share for _, share in self._grow])
        for (score, _), share in zip(self._grow, shares, strict=True):
            mask |= select_top(score(view), share, ~mask, view.generator)
        return mask

    def _adapt_threshold(self, pruned: int, wanted: float) -> None:
        if self._scope != "threshold":
            return
        if pruned < (1 - _TOLERANCE) * wanted:
            self.threshold *= 2
        elif pruned > (1 + _TOLERANCE) * wanted:
            self.threshold /= 2


def growth_counts(
    views: list[WeightView], kept: list[Tensor], redistribute: Redistribution | None
) -> list[int]:
    """How many weights each layer grows: as many as it lost, or its share of what all lost."""
    remaining = [int(stay.sum()) for stay in kept]
    lost = [int(view.mask.sum()) - left for view, left in zip(views, remaining, strict=True)]
    if redistribute is None:
        return lost
    wishes = [float(left) for left in remaining]
    if redistribute == "momentum":
        wishes = [_mean_momentum(view) for view in views]
    # No layer may die, for none would ever bring it back: one that lost all gets a weight first.
    first = [int(left == 0 and gone > 0) for left, gone in zip(remaining, lost, strict=True)]
    capacities = [
        stay.numel() - left - one for stay, left, one in zip(kept, remaining, first, strict=True)
    ]
    shares = apportion(sum(lost) - sum(first), wishes, capacities)
    return [one + share for one, share in zip(first, shares, strict=True)]


def apportion(total: int, wishes: list[float], capacities: list[int]) -> list[int]:
    """Whole numbers in the proportion of the wishes that add up to `total`.

    None exceeds its capacity: what is over goes to the others, in proportion again.

    Example:
        >>> apportion(10, [3.0, 1.0, 1.0], [4, 9, 9])
        [4, 3, 3]
    """
    shares = [0.0] * len(wishes)
    open_ = [i for i, capacity in enumerate(capacities) if capacity > 0]
    left = total
    while open_:
        if not any(wishes[i] > 0 for i in open_):  # nobody left wishes for more
            wishes = [float(capacity) for capacity in capacities]
        scale = left / sum(wishes[i] for i in open_)
        full = [i for i in open_ if scale * wishes[i] >= capacities[i]]
        for i in full or open_:
            shares[i] = float(capacities[i]) if full else scale * wishes[i]
        if not full:
            break
        left -= sum(capacities[i] for i in full)
        open_ = [i for i in open_ if i not in full]
    return round_to(total, shares)


def _mean_momentum(view: WeightView) -> float:
    mean = float(as_score("momentum")(view)[view.mask].double().mean()) if view.mask.any() else 0.0
    if not math.isfinite(mean):
        raise FreeTicketsError(
            f"the momentum of {view.name!r} is infinite at an exploration: the loss diverged; "
            "lower the learning rate or check the data"
        )
    return mean


def _kept(nonzeros: int, rate: float) -> int:
    # The tolerance keeps 0.07 x 100, which floating point makes 7.000000000000001, at 7 weights.
    return nonzeros - math.ceil(rate * nonzeros - 1e-9)


def _split(count: int, shares: list[float]) -> list[int]:
    """Whole numbers in the given proportion that add up to `count`."""
    ends = [round(count * sum(shares[: i + 1])) for i in range(len(shares))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
