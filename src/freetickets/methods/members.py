"""Several members in one network: what the trainer and the ensemble ask of it, and its tools."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..models.prepare import preparable_modules

WeightLayer = nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d


class MemberNetwork(nn.Module):
    """One network that holds several members."""

    members: int  # how many (M)
    training_share: float = 1.0  # FLOPs of a training forward over those of a prediction by all

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Predicts a batch (B, ...): the logits of all members, (M, B, C).

        With labels (B, ...) it says what to train on: K pairs of logits (K, C) and labels (K, ...),
        whose mean loss is the method's.
        """
        return self.member_logits(x) if labels is None else self.training_pairs(x, labels)

    def member_logits(self, x: Tensor) -> Tensor:
        """Returns the logits of all members, (M, B, C)."""
        raise NotImplementedError

    def training_pairs(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns logits (K, C) and the labels (K,) they are to learn."""
        raise NotImplementedError

    def undecayed(self) -> list[nn.Parameter]:
        """Returns the parameters that weight decay must leave alone."""
        return []


def redrawn(values: Tensor) -> Tensor:
    """Returns the values of a fresh parameter in a new random order.

    They were drawn independently, so this is another draw from the network's own initialisation.
    Zeros and ones were set, not drawn: they stay, as in BatchNorm or filters that pass on an input.
    """
    fresh = values.detach().clone(memory_format=torch.contiguous_format)
    if not values.is_meta:  # an outline has no values
        flat = fresh.view(-1)
        drawn = (flat != 0) & (flat != 1)
        order = torch.randperm(flat.numel()).to(flat.device)
        flat[drawn] = flat[order[drawn[order]]]
    return fresh


def weight_layers(network: nn.Module) -> dict[str, WeightLayer]:
    """Returns the linear and convolutional layers by name, in the order of their definition.

    Those of `nn.MultiheadAttention` are left out: it uses their weights without calling them. So
    are frozen ones that a module has computed from the training data.
    """
    attentions = [each for each in network.modules() if isinstance(each, nn.MultiheadAttention)]
    hidden = {layer for attention in attentions for layer in attention.modules()}
    computed = {layer for module in preparable_modules(network) for layer in module.modules()}
    return {
        name: layer
        for name, layer in network.named_modules()
        if isinstance(layer, WeightLayer)
        and layer not in hidden
        and (layer.weight.requires_grad or layer not in computed)
    }


def replace_layers(network: nn.Module, make: Callable[[WeightLayer], nn.Module]) -> nn.Module:
    """Puts `make(layer)` in the place of each of the `weight_layers`, and returns the network.

    A layer that is used in several places is replaced by one and the same.
    """
    layers = weight_layers(network).values()
    made: dict[nn.Module, nn.Module] = {layer: make(layer) for layer in layers}
    for module in list(network.modules()):
        if module not in made:
            # Not named_children, which has each layer once.
            for name, child in module._modules.items():
                if child is not None and child in made:
                    setattr(module, name, made[child])
    return made.get(network, network)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Puts a network in evaluation mode for a while, then each module back in its own."""
    modes = {module: module.training for module in network.modules()}
    network.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


@contextmanager
def layer_by_layer() -> Iterator[None]:
    """Makes transformers call their layers: in prediction they would use the weights directly."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
