"""One exploration as pure functions: which weights survive, and which are grown."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .score import Score, WeightView
from .topology import select_top


def survivors(
    views: list[WeightView], prune: Score, rate: float, *, across_layers: bool = False
) -> list[Tensor]:
    """Which active weights stay: a share 1 - rate of each layer, or of all layers together."""
    scores = [prune(view) for view in views]
    masks = [view.mask for view in views]
    generator = views[0].generator
    if not across_layers:
        return [
            select_top(score, _kept(int(mask.sum()), rate), mask, generator)
            for score, mask in zip(scores, masks, strict=True)
        ]
    kept = select_top(
        torch.cat([score.flatten() for score in scores]),
        _kept(sum(int(mask.sum()) for mask in masks), rate),
        torch.cat([mask.flatten() for mask in masks]),
        generator,
    )
    parts = torch.split(kept, [mask.numel() for mask in masks])
    return [part.view(mask.shape) for part, mask in zip(parts, masks, strict=True)]


def grown(view: WeightView, kept: Tensor, growth: list[tuple[Score, float]], count: int) -> Tensor:
    """The survivors and `count` new weights, chosen by each growth score in turn.

    Weights pruned a moment ago are candidates like all other inactive ones, as in the paper.
    """
    mask = kept.clone()
    shares = _split(count, [share for _, share in growth])
    for (score, _), share in zip(growth, shares, strict=True):
        mask |= select_top(score(view), share, ~mask, view.generator)
    return mask


def _kept(nonzeros: int, rate: float) -> int:
    # The tolerance keeps 0.07 x 100, which floating point makes 7.000000000000001, at 7 weights.
    return nonzeros - math.ceil(rate * nonzeros - 1e-9)


def _split(count: int, shares: list[float]) -> list[int]:
    """Whole numbers in the given proportion that add up to `count`."""
    ends = [round(count * sum(shares[: i + 1])) for i in range(len(shares))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
