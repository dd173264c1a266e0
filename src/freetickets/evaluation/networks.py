"""What only the networks of a run tell: digests, densities, how far apart they are within."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data import LazySplit, Split
from ..ensemble import Ensemble
from ..errors import FreeTicketsError
from ..methods.members import MemberNetwork, evaluating, layer_by_layer, weight_layers
from ..ticket import Ticket
from .results import Feature, Layer

# All maps of all members are in memory at once: 1 GB for three WRN-28-10 and this many samples.
_MOST_AT_A_TIME = 32


def feature_kl_by_layer(
    ensemble: Ensemble, split: Split | LazySplit, batch_size: int = _MOST_AT_A_TIME
) -> tuple[Feature, ...]:
    """Compares what the members compute, in each layer that runs, in the order of definition.

    Each position of a layer's output is a distribution over its channels, by softmax. Two members
    differ by the KL of theirs, row i, column j being KL(i || j), summed over the positions of a
    sample, and averaged over the samples, and over all ordered pairs.
    """
    if any(isinstance(network, MemberNetwork) for network in ensemble.networks):
        raise FreeTicketsError(
            f"the members of {ensemble.info.get('method')} share the feature maps of one network: "
            "compare members that have a network each"
        )
    if len(ensemble) < 2:
        raise FreeTicketsError(
            "feature maps are compared, and this ensemble has one member: train 2"
        )
    sums: dict[str, Tensor] = {}
    for inputs in ensemble.batches(split, batch_size):
        outputs = [_layer_outputs(network, inputs) for network in ensemble.networks]
        for layer in list(outputs[0]):
            maps = torch.stack([each.pop(layer) for each in outputs])
            sums[layer] = sums.get(layer, torch.tensor(0.0)) + _divergences(maps)
    pairs = len(ensemble) * (len(ensemble) - 1)
    means = {layer: total / len(split) for layer, total in sums.items()}
    return tuple(
        Feature(layer, float(matrix.sum()) / pairs, tuple(map(tuple, matrix.tolist())))
        for layer, matrix in means.items()
    )


@torch.no_grad()
def _layer_outputs(network: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """The outputs of the layers with weights, (N, channels, ...), by their names."""
    found: dict[str, Tensor] = {}
    layers = weight_layers(network)

    def watch(name: str, layer: nn.Module) -> Any:
        def keep(_: nn.Module, __: Any, output: Tensor) -> None:
            if isinstance(layer, nn.Linear):  # its channels come last, behind any positions
                output = output.movedim(-1, 1)
            found[name] = output.clone()  # an activation in place may follow

        return layer.register_forward_hook(keep)

    hooks = [watch(name, layer) for name, layer in layers.items()]
    try:
        with evaluating(network), layer_by_layer():
            network(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: found[name] for name in layers if name in found}


def _divergences(maps: Tensor) -> Tensor:
    """KL(i || j) of the maps (M, N, K, ...) of M members, summed over the samples, (M, M)."""
    logs = maps.double().reshape(*maps.shape[:3], -1).log_softmax(2)
    cross = logs.exp().flatten(1) @ logs.flatten(1).T
    return (cross.diagonal()[:, None] - cross).clamp(min=0).cpu()


def digest_tickets(folder: Path) -> str | None:
    """A digest of a run's tickets and temperature, by which predictions know what made them."""
    files = sorted((folder / "tickets").glob("[0-9]*.safetensors"))
    if not files:
        return None
    content = hashlib.sha256()
    for file in (*files, folder / "calibration.json"):
        if file.exists():
            content.update(f"{file.name}|{file.stat().st_size}|".encode())
            content.update(file.read_bytes())
    return content.hexdigest()[:16]


def layer_densities(tickets: Sequence[Ticket]) -> tuple[Layer, ...]:
    """How dense each weight of two axes or more is in each ticket; none, if no ticket is sparse."""
    if not any(ticket.topology for ticket in tickets):
        return ()
    layers = []
    for name, weight in tickets[0].state.items():
        if weight.dim() >= 2:
            masks = [ticket.topology.get(name) for ticket in tickets]
            shares = (1.0 if mask is None else float(mask.double().mean()) for mask in masks)
            layers.append(Layer(name, tuple(shares), tuple(weight.shape)))
    return tuple(layers)
