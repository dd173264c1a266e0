"""What an exploration or a pruning decides, and the dense gradients that it looks at."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..errors import FreeTicketsError, check_known
from .distribution import level, round_to
from .score import GrowthLike, ScoreLike, WeightView, as_mixture, as_score
from .structure import Structure, Unstructured
from .topology import select_across, select_top
from .weight import MaskedWeight

Scope = Literal["layer", "global", "threshold"]
Redistribution = Literal["momentum", "survivors"]

# DSR's own: where its threshold starts, and how far from the wanted number it may prune.
_FIRST_THRESHOLD = 1e-3
_TOLERANCE = 0.1
# The decay of the running mean of dense gradients that "momentum" growth looks at, as in SNFS.
_MOMENTUM_DECAY = 0.9


class Explorer:
    """Chooses what survives and what grows; the weights themselves are changed by others.

    A structure goes only with scope "layer", one growth score and no redistribution. `threshold` is
    where scope "threshold" prunes next.
    """

    def __init__(
        self, prune: ScoreLike, grow: GrowthLike, scope: Scope, redistribute: Redistribution | None,
        structure: Structure,
    ) -> None:  # fmt: skip
        check_known("prune_scope", scope, get_args(Scope))
        if redistribute is not None:
            check_known("redistribute", redistribute, get_args(Redistribution))
        self.threshold = _FIRST_THRESHOLD
        self.prune_score = as_score(prune)
        self.layerwise = scope == "layer"
        self._grow = as_mixture(grow)
        self._scope, self._redistribute, self._structure = scope, redistribute, structure

    @property
    def needs(self) -> frozenset[str]:
        """What is to be recorded: "gradient", "momentum", both or nothing."""
        needs = self.prune_score.needs.union(*(score.needs for score, _ in self._grow))
        return needs | {"momentum"} if self._redistribute == "momentum" else needs

    def prune(self, views: list[WeightView], counts: list[int] | int) -> list[Tensor]:
        """Returns the strongest weights: a count for each layer, or one for all by one threshold.

        A layer that has no more than its count keeps all its weights.
        """
        scores, masks = [self.prune_score(view) for view in views], [view.mask for view in views]
        active, generator = [int(mask.sum()) for mask in masks], views[0].generator
        if isinstance(counts, int):
            return select_across(scores, min(counts, sum(active)), masks, generator)
        return [
            self._structure.survive(score, min(count, nonzeros), mask, generator)
            for score, count, nonzeros, mask in zip(scores, counts, active, masks, strict=True)
        ]

    def explore(self, views: list[WeightView], rate: float) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the survivors and the new topology of each layer, as large in all as the old."""
        active = [int(view.mask.sum()) for view in views]
        if self._scope == "threshold":
            kept = [view.mask & (self.prune_score(view) >= self.threshold) for view in views]
        elif self._scope == "global":
            kept = self.prune(views, _kept(sum(active), rate))
        else:
            kept = self.prune(views, [_kept(nonzeros, rate) for nonzeros in active])
        counts = growth_counts(views, kept, self._redistribute)
        masks = [self._grown(*layer) for layer in zip(views, kept, counts, strict=True)]
        if self._scope == "threshold":
            pruned, wanted = sum(counts), rate * sum(active)
            if pruned < (1 - _TOLERANCE) * wanted:
                self.threshold *= 2
            elif pruned > (1 + _TOLERANCE) * wanted:
                self.threshold /= 2
        return kept, masks

    def _grown(self, view: WeightView, kept: Tensor, count: int) -> Tensor:
        # Weights pruned a moment ago are candidates like all other inactive ones, as in the paper.
        if not isinstance(self._structure, Unstructured):
            ((score, _),) = self._grow
            total = int(kept.sum()) + count
            return self._structure.select(score(view), total, ~kept, view.generator, kept)
        mask, given, end = kept.clone(), 0, 0.0
        for score, share in self._grow:
            end += share
            new = round(count * end) - given
            mask |= select_top(score(view), new, ~mask, view.generator)
            given += new
        return mask


def growth_counts(
    views: list[WeightView], kept: list[Tensor], redistribute: Redistribution | None
) -> list[int]:
    """How many weights each layer grows: as many as it lost, or its share of what all lost."""
    remaining = [int(stay.sum()) for stay in kept]
    lost = [int(view.mask.sum()) - left for view, left in zip(views, remaining, strict=True)]
    if redistribute is None:
        return lost
    means = map(_mean_momentum, views) if redistribute == "momentum" else map(float, remaining)
    # No layer may die, for none would ever bring it back: one that lost all gets a weight first.
    first = [int(left == 0 and gone > 0) for left, gone in zip(remaining, lost, strict=True)]
    layers = zip(kept, remaining, first, strict=True)
    capacities = [stay.numel() - left - one for stay, left, one in layers]
    shares = apportion(sum(lost) - sum(first), list(means), capacities)
    return [one + share for one, share in zip(first, shares, strict=True)]


def apportion(total: int, wishes: list[float], capacities: list[int]) -> list[int]:
    """Whole numbers in the proportion of the wishes that add up to `total`.

    None exceeds its capacity: what is over goes to the others, in proportion again, or, if nobody
    is left who wishes for more, in proportion to the capacities.
    """
    most = [c if w > 0 else 0 for w, c in zip(wishes, capacities, strict=True)]
    if sum(most) > total:
        scale = level(total, wishes, capacities)
        shares = [min(float(c), scale * w) for w, c in zip(wishes, capacities, strict=True)]
    else:
        scale = (total - sum(most)) / max(1, sum(capacities) - sum(most))
        shares = [m + scale * (c - m) for m, c in zip(most, capacities, strict=True)]
    return round_to(total, shares)


def _mean_momentum(view: WeightView) -> float:
    mean = float(as_score("momentum")(view)[view.mask].double().mean()) if view.mask.any() else 0.0
    if not math.isfinite(mean):
        raise FreeTicketsError(
            f"the momentum of {view.name!r} is infinite: the loss diverged; lower the learning rate"
        )
    return mean


def _kept(nonzeros: int, rate: float) -> int:
    # The tolerance keeps 0.07 x 100, which floating point makes 7.000000000000001, at 7 weights.
    return nonzeros - math.ceil(rate * nonzeros - 1e-9)


class GradientRecord:
    """Sums dense gradients over the window before an exploration, and their running mean.

    The gradients of a step are taken before it and committed after it, so that a step which the
    optimizer does not take (an overflow) leaves no trace. `keep` says that the coming step's are
    wanted, exploration or not; `open`, that the next gradient belongs to the same window.
    """

    def __init__(self, needs: Iterable[str], window: int) -> None:
        self._sums, self._averages = "gradient" in needs, "momentum" in needs
        self.window = window
        self._count = 0
        self.open = self.keep = self._wanted = False
        self.taken: dict[str, Tensor] | None = None
        self._gradients: dict[str, Tensor] = {}
        self._momentum: dict[str, Tensor] = {}

    def require(self) -> None:
        """Raises if a gradient is needed and no layer has one."""
        if (self._sums and not self._gradients) or (self._averages and not self._momentum):
            raise FreeTicketsError(
                "no dense gradient to grow by: call keep_gradients() before the forward pass of "
                "the step before explore(), and zero_grad() after it"
            )

    def needs(self, wanted: bool) -> bool:
        """Whether the coming step's gradients are needed; `wanted`: an exploration uses them."""
        return self._averages or (self._sums and (wanted or self.keep))

    def take(self, weights: Iterable[MaskedWeight], wanted: bool) -> None:
        """Copies the gradients of the coming step; `wanted`: an exploration will use them."""
        self._wanted, self.taken = wanted or self.keep, {}
        for weight in weights if self.needs(wanted) else ():
            if (gradient := weight.take_gradient()) is not None:
                self.taken[weight.name] = gradient

    def commit(self) -> None:
        """Records what was taken: the step is done."""
        if not self.open or self._count == self.window:
            self._gradients, self._count = {}, 0
        self.open = self._wanted
        self._count += self._wanted
        for name, gradient in (self.taken or {}).items():
            if self._averages:
                mean = self._momentum.setdefault(name, torch.zeros_like(gradient))
                mean.mul_(_MOMENTUM_DECAY).add_(gradient, alpha=1 - _MOMENTUM_DECAY)
            if self._sums and self._wanted:
                total = self._gradients.get(name)
                self._gradients[name] = gradient if total is None else total + gradient
        self.taken, self.keep, self._wanted = None, False, False

    def of(self, name: str) -> tuple[Tensor | None, Tensor | None]:
        """A layer's mean gradient over the window, and running mean; None if it had none."""
        total = self._gradients.get(name)
        mean = total / self._count if total is not None and self._count > 1 else total
        return mean, self._momentum.get(name)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs."""
        return {
            "count": self._count,
            "open": self.open,
            "keep": self.keep,
            "gradients": {n: g.clone() for n, g in self._gradients.items()},
            "momentum": {n: m.clone() for n, m in self._momentum.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any], on: Mapping[str, torch.device]) -> None:
        """Restores a `state_dict`."""
        self.taken, self._wanted = None, False
        self._count, self.open, self.keep = state["count"], state["open"], state["keep"]
        self._gradients = {n: g.to(on[n], copy=True) for n, g in state["gradients"].items()}
        self._momentum = {n: m.to(on[n], copy=True) for n, m in state["momentum"].items()}
