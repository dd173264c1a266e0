"""A network whose members share all weights but a rank-one factor each."""

import torch
from torch import Tensor, nn

from ...errors import FreeTicketsError
from ..members import MemberNetwork, WeightLayer, layer_by_layer, replace_layers, weight_layers


class RankOneLayer(nn.Module):
    """A layer with a weight W ∘ r sᵀ for each member, of which only W is large, and shared.

    Its bias becomes one for each member. `rows` says how many samples of the batch that is being
    computed belong to each member, in turn; all layers of a network have the same list.
    """

    def __init__(self, layer: WeightLayer, members: int, rows: list[int]) -> None:
        super().__init__()
        weight, bias = layer.weight, layer.bias
        self.layer, self._rows = layer, rows
        inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        self.s = _signs(members, inputs, weight)
        self.r = _signs(members, len(weight), weight)
        self.bias = nn.Parameter(bias.detach().repeat(members, 1)) if bias is not None else None
        layer.register_parameter("bias", None)
        self._channels = -1 if isinstance(layer, nn.Linear) else 1

    def forward(self, x: Tensor) -> Tensor:
        """Computes r ∘ W (s ∘ x) + b, with the r, s and b of each row's member."""
        y = self.layer(x * self._spread(self.s, x))
        y = y * self._spread(self.r, y)
        return y if self.bias is None else y + self._spread(self.bias, y)

    def _spread(self, factors: Tensor, x: Tensor) -> Tensor:
        # Repeats each member's factors for its rows, shaped to be multiplied with x.
        times, rest = divmod(len(x), sum(self._rows))
        if rest or not times:
            raise FreeTicketsError(
                f"BatchEnsemble: a layer is given {len(x)} rows for {sum(self._rows)} samples: the "
                "first axis must be the batch throughout (batch_first=True)"
            )
        pairs = zip(factors, self._rows, strict=True)
        shape = [1] * x.ndim
        shape[0], shape[self._channels] = len(x), -1
        return torch.cat([factor.expand(n * times, -1) for factor, n in pairs]).view(shape)


class BatchEnsembleNetwork(MemberNetwork):
    """A network with a rank-one factor for each member on each of its layers.

    `tiled` is whether each member trains on the whole batch, or on its part of it.
    """

    def __init__(self, network: nn.Module, members: int, tiled: bool) -> None:
        super().__init__()
        if not weight_layers(network):
            raise FreeTicketsError(
                f"BatchEnsemble needs linear or convolutional layers; {type(network).__name__} "
                "has none"
            )
        self.members, self.training_share = members, 1.0 if tiled else 1 / members
        self._tiled, self._rows = tiled, list[int]()
        self.network = replace_layers(network, lambda each: RankOneLayer(each, members, self._rows))

    def member_logits(self, x: Tensor) -> Tensor:
        """Gives the batch to all members, one after the other on the first axis."""
        tiles = x.repeat(self.members, *[1] * (x.ndim - 1))
        return self._run(tiles, [len(x)] * self.members).reshape(self.members, len(x), -1)

    def training_pairs(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Gives each member the whole batch, or its part."""
        if self._tiled:
            return self.member_logits(x).flatten(0, 1), torch.cat([labels] * self.members)
        return self._run(x, [len(part) for part in labels.tensor_split(self.members)]), labels

    def undecayed(self) -> list[nn.Parameter]:
        """The factors: decay would pull them from ±1 to 0, and the shared weight with them."""
        layers = [module for module in self.modules() if isinstance(module, RankOneLayer)]
        return [factor for layer in layers for factor in (layer.r, layer.s)]

    def _run(self, x: Tensor, rows: list[int]) -> Tensor:
        self._rows[:] = rows
        with layer_by_layer():
            return self.network(x)


def _signs(members: int, size: int, like: Tensor) -> nn.Parameter:
    signs = torch.randint(2, (members, size)) * 2 - 1
    return nn.Parameter(signs.to(like.device, like.dtype))
