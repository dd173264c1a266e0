"""Topologies: one boolean mask a layer, and the operations that keep their counts exact."""

import hashlib
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import FreeTicketsError, check_known

Topology = dict[str, Tensor]


def random_mask(shape: torch.Size, count: int, generator: torch.Generator) -> Tensor:
    """Draws a mask with exactly `count` active entries."""
    mask = torch.zeros(math.prod(shape), dtype=torch.bool)
    mask[torch.randperm(mask.numel(), generator=generator)[:count]] = True
    return mask.view(shape)


def largest(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The mask of the weights of largest size."""
    return select_top(weight.detach().abs(), count, torch.ones_like(weight).bool(), generator)


def check_topology(
    topology: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> Topology:
    """Returns copies of the masks that anyone gives, packed or not, in the order of the weights."""
    masks = {}
    for name, mask in topology.items():
        check_known("layer in the topology:", name, shapes)
        shape = shapes[name]
        if mask.dtype == torch.uint8 and mask.shape == (math.ceil(math.prod(shape) / 8),):
            mask = unpack_mask(mask, shape)
        if mask.shape != shape or mask.dtype != torch.bool:
            raise FreeTicketsError(
                f"the topology's mask of {name!r} is {mask.dtype} of shape {tuple(mask.shape)}: it "
                f"must be torch.bool of shape {tuple(shape)}"
            )
        if not mask.any():
            raise FreeTicketsError(
                f"the topology leaves layer {name!r} without a single weight: exclude it instead"
            )
        masks[name] = mask.cpu().clone()
    return {name: masks[name] for name in shapes if name in masks}


def given_topology(weights: Mapping[str, nn.Parameter], name: str = "given") -> Topology:
    """The topology that a network's zeros are; a weight without zeros has no mask."""
    check_known("topology", name, ["given"])
    masks = {name: weight.detach() != 0 for name, weight in weights.items()}
    masks = {name: mask for name, mask in masks.items() if not mask.all()}
    if not masks:
        raise FreeTicketsError(
            "topology='given' takes over zeros, but its weights have no zeros: load them first"
        )
    return masks


def select_top(
    scores: Tensor, count: int, candidates: Tensor, generator: torch.Generator
) -> Tensor:
    """Returns a mask of exactly the `count` candidates with the highest scores.

    Ties at the threshold are broken at random, so that a layer without any gradient (dead units)
    grows like SET instead of always at the same end of the tensor.
    """
    if count == 0:
        return torch.zeros_like(candidates)
    ranked = scores.masked_fill(~candidates, -math.inf).flatten()
    threshold = _kth_largest(ranked, count)
    chosen = ranked > threshold
    missing = count - int(chosen.sum())
    ties = ((ranked == threshold) & candidates.flatten()).nonzero().flatten()
    if missing < ties.numel():
        order = torch.randperm(ties.numel(), generator=generator)
        ties = ties[order[:missing].to(ties.device)]
    chosen[ties] = True
    return chosen.view(candidates.shape)


def select_across(
    scores: Sequence[Tensor], count: int, candidates: Sequence[Tensor], generator: torch.Generator
) -> list[Tensor]:
    """Like `select_top` with one threshold for several layers."""
    all_scores, everywhere = (
        torch.cat([tensor.flatten() for tensor in each]) for each in (scores, candidates)
    )
    chosen = select_top(all_scores, count, everywhere, generator)
    parts = torch.split(chosen, [mask.numel() for mask in candidates])
    return [part.view(mask.shape) for part, mask in zip(parts, candidates, strict=True)]


def _kth_largest(values: Tensor, k: int) -> float:
    rank = values.numel() - k
    if values.dtype not in (torch.float32, torch.float64):
        values = values.float()  # exact for the smaller types
    if values.device.type == "cpu":
        # NumPy selects with vector instructions: ten times faster than torch.kthvalue on a CPU.
        return float(np.partition(values.numpy(), rank)[rank])
    return float(values.kthvalue(rank + 1).values)


def pack_mask(mask: Tensor) -> Tensor:
    """Packs a mask to one bit an entry."""
    return torch.from_numpy(np.packbits(mask.detach().cpu().numpy()))


def unpack_mask(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Undoes `pack_mask`."""
    bits = np.unpackbits(packed.cpu().numpy(), count=math.prod(shape))
    return torch.from_numpy(bits.astype(bool)).view(shape)


def digest(topology: Mapping[str, Tensor]) -> str:
    """A fingerprint: two networks have the same one exactly if their topologies are equal."""
    state = hashlib.sha256()
    for name, mask in topology.items():
        state.update(f"{name}{tuple(mask.shape)}".encode())
        state.update(pack_mask(mask).numpy().tobytes())
    return state.hexdigest()
