"""Zeros that a network has already: they become its topology, or are not destroyed in silence."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from ..errors import FreeTicketsError, UnknownNameError
from .topology import Topology
from .weight import CompressedWeight, MaskedWeight

# So many exact zeros, as a share, are no chance: somebody has pruned.
_PRUNED = 0.05


def given_topology(weights: Mapping[str, nn.Parameter], name: str = "given") -> Topology:
    """The topology that a network's zeros are; a weight without zeros has no mask.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> _ = nn.init.eye_(layer.weight)
        >>> given_topology({"weight": layer.weight})["weight"].tolist()
        [[True, False], [False, True]]
    """
    if name != "given":
        raise UnknownNameError("topology", name, ["given"])
    masks = {name: weight.detach() != 0 for name, weight in weights.items()}
    masks = {name: mask for name, mask in masks.items() if not mask.all()}
    if not masks:
        raise FreeTicketsError(
            "topology='given' takes over the network's zeros, but its weights have no zeros: "
            "load them first, or leave topology out for a random one"
        )
    return masks


class Watch:
    """Notices weights that come with another topology, before they are set to zero.

    Args:
        weights: All weights that may become sparse, as they are before.
        masks: The topology that they are about to have.
        chosen: Whether somebody chose it: then nothing that it ends is lost by mistake.
    """

    def __init__(
        self, weights: Mapping[str, nn.Parameter], masks: Topology, *, chosen: bool
    ) -> None:
        self._lost = {} if chosen else _lost(weights, masks)
        self._versions: dict[str, int] = {}
        if self._lost:
            warnings.warn(
                "the network has the zeros of a topology, which a new random one replaces: pass "
                "topology='given' to keep it, or load the weights after making the Sparsifier",
                stacklevel=3,
            )

    def settle(self, weights: Iterable[MaskedWeight]) -> None:
        """Takes note that the weights fit their topology now."""
        self._versions = {weight.name: weight.parameter._version for weight in weights}

    def check(
        self, weights: Iterable[MaskedWeight], masks: Mapping[str, Tensor] | None = None
    ) -> None:
        """Raises if a weight that somebody changed since has the zeros of another topology.

        That is another one than the masks, or than its own. What lies outside for another reason (a
        new initialisation, noise, an average) may be set to zero.
        """
        for weight in weights:
            # Only a look at every number tells more, which each step would feel.
            if isinstance(weight, CompressedWeight):
                changed = weight.layer.pending is not None
            else:
                changed = self._versions.get(weight.name) != weight.parameter._version
            if not changed:
                continue
            mask = weight.mask if masks is None else masks[weight.name]
            if _is_of_another_topology(weight.tensor != 0, mask.to(weight.parameter.device)):
                raise FreeTicketsError(
                    f"the weights of {weight.name!r} were loaded with another topology than the "
                    "sparsifier's: load the state of its own that was saved with them, or call "
                    "set_topology() with their masks"
                )

    def check_order(self, weights: Iterable[MaskedWeight], masks: Mapping[str, Tensor]) -> None:
        """Raises if the weights of a saved topology are gone since the sparsifier was made."""
        for weight in weights:
            if weight.name not in self._lost or weight.name not in masks:
                continue
            wanted = self._lost[weight.name] & masks[weight.name].cpu()
            wanted = wanted.to(weight.parameter.device)
            if wanted.any() and not weight.tensor[wanted].any():
                raise FreeTicketsError(
                    "the weights were loaded before the Sparsifier was made, which set those "
                    "outside its own topology to zero: load the network and the optimizer again, "
                    "and this state last; or make it with topology=state['topology']"
                )


def _is_of_another_topology(there: Tensor, mask: Tensor) -> bool:
    """Whether non-zeros lie elsewhere than a mask, instead of where it wants them.

    Either no more lie outside than are missing inside: the number is kept, the places are not. Or
    zeros lie inside nearly as often as outside (at least half as often, and no few by chance), as
    if they knew nothing of the mask.
    """
    active, stray = int(mask.sum()), int((there & ~mask).sum())
    missing = active - int((there & mask).sum())
    outside = mask.numel() - active
    return stray > 0 and (
        missing >= stray or missing / active >= max(_PRUNED, (outside - stray) / outside / 2)
    )


def _lost(weights: Mapping[str, nn.Parameter], masks: Topology) -> Topology:
    """Where a topology sets weights to zero that are active in one which the network has already.

    Empty if it has none. A weight that is zero as a whole was initialised so, not pruned.
    """
    there = {name: weight.detach().cpu() != 0 for name, weight in weights.items()}
    there = {name: mask for name, mask in there.items() if mask.any()}
    zeros = sum(int((~mask).sum()) for mask in there.values())
    if not zeros or zeros < _PRUNED * sum(mask.numel() for mask in there.values()):
        return {}
    lost = {name: there[name] & ~mask for name, mask in masks.items() if name in there}
    return {name: places for name, places in lost.items() if places.any()}
