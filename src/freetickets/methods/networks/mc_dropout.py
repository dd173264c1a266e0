"""A network whose members are passes with different units dropped."""

import torch
from torch import Tensor, nn

from ...errors import FreeTicketsError
from ...seeds import derive
from ..members import MemberNetwork, evaluating, layer_by_layer, replace_layers, weight_layers

_DROPOUT = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
# What these do in training and not in prediction is dropout, and nothing else.
_RANDOM = (*_DROPOUT, nn.MultiheadAttention, nn.RNNBase)


class MCDropoutNetwork(MemberNetwork):
    """A network that predicts several times with dropout: its own, or some that is put in.

    `rate` is that of the dropout layers that have none of their own.
    """

    def __init__(self, network: nn.Module, passes: int, rate: float) -> None:
        super().__init__()
        self.members, self.training_share = passes, 1 / passes
        if not any(isinstance(module, _DROPOUT) for module in network.modules()):
            layers = list(weight_layers(network).values())
            if len(layers) < 2:
                raise FreeTicketsError(
                    f"MC Dropout finds no place for dropout in {type(network).__name__}, which has "
                    "fewer than two linear or convolutional layers: give it nn.Dropout layers"
                )
            network = replace_layers(
                network,
                lambda each: each if each is layers[0] else nn.Sequential(nn.Dropout(0), each),
            )
        for module in network.modules():
            if isinstance(module, _DROPOUT) and module.p == 0:
                module.p = rate
        self.network = network

    def member_logits(self, x: Tensor) -> Tensor:
        """Predicts with the same draws each time, so that a prediction can be repeated."""
        devices, passes = [x.device] if x.is_cuda else [], []
        with torch.random.fork_rng(devices), evaluating(self.network), layer_by_layer():
            for module in self.network.modules():
                module.training = isinstance(module, _RANDOM)
            for number in range(self.members):
                torch.manual_seed(derive("mc-dropout", number))
                passes.append(self.network(x))
        return torch.stack(passes)

    def training_pairs(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Trains like any network with dropout."""
        return self.network(x), labels
