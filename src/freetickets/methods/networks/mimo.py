"""A network that takes several inputs at once and has a head for each."""

import math

import torch
from torch import Tensor, nn

from ...errors import FreeTicketsError, is_out_of_memory
from ...kernels.layers import replace
from ...models.prepare import preparable_modules
from ..members import MemberNetwork, WeightLayer, redrawn, weight_layers


class MIMONetwork(MemberNetwork):
    """A network with M inputs and M outputs.

    The M inputs lie side by side on the axis that the first layer mixes: the channels of a
    convolution, the last axis of a linear layer. A module in front that was computed from the
    training data, such as whitening, looks at each of them by itself, with the same weights. The
    network's first layer with weights and its last linear layer are widened in place.
    """

    def __init__(
        self, network: nn.Module, members: int, input_repetition: float, batch_repetition: int
    ) -> None:
        super().__init__()
        self.members, self.training_share = members, float(batch_repetition)
        self._input_repetition, self._batch_repetition = input_repetition, batch_repetition
        self._name = type(network).__name__
        layers = weight_layers(network)
        linear = {name: each for name, each in layers.items() if isinstance(each, nn.Linear)}
        if not linear:
            raise FreeTicketsError(
                f"MIMO needs a network that ends in a linear layer; {self._name} has none"
            )
        first, last = self._ends = next(iter(layers)), next(reversed(linear))
        _widen_inputs(layers[first], members)
        for name, values in list(linear[last].named_parameters(recurse=False)):
            setattr(linear[last], name, nn.Parameter(torch.cat(_copies(values, members))))
        linear[last].out_features *= members
        self._axis = -1 if first in linear else 1
        for module in preparable_modules(network):
            if module is network:
                raise FreeTicketsError(
                    f"MIMO: {self._name} looks at training data as a whole: give prepare_on to a "
                    "module of its own, in front"
                )
            replace(network, module, _OneByOne(module, members, self._axis))
        self.network, self._checked = network, False

    def member_logits(self, x: Tensor) -> Tensor:
        """Gives the same samples to all heads."""
        return self._logits([x] * self.members)

    def training_pairs(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Gives each head the batch in an order of its own."""
        batch = torch.arange(len(x)).repeat(self._batch_repetition)
        batch = batch[torch.randperm(len(batch))]
        shuffled = round(len(batch) * (1 - self._input_repetition))
        parts = [[batch[torch.randperm(shuffled)], batch[shuffled:]] for _ in range(self.members)]
        orders = [torch.cat(part).to(x.device) for part in parts]
        logits = self._logits([x[order] for order in orders])
        return logits.flatten(0, 1), torch.cat([labels[order] for order in orders])

    def _logits(self, inputs: list[Tensor]) -> Tensor:
        x = torch.cat(inputs, dim=self._axis)
        logits: Tensor = self.network(x) if self._checked else self._first_run(x)
        return logits.reshape(len(x), self.members, -1).transpose(0, 1)

    def _first_run(self, x: Tensor) -> Tensor:
        """Raises unless the widened layers are the first and the last to be used."""
        used: list[str] = []
        # A hook inside a transformer would keep it from its fused prediction, and change the bits.
        blocks = [m for m in self.network.modules() if isinstance(m, nn.TransformerEncoderLayer)]
        fused = {layer for block in blocks for layer in block.modules()}
        hooks = [
            layer.register_forward_pre_hook(lambda *_, name=name: used.append(name))
            for name, layer in weight_layers(self.network).items()
            if layer not in fused
        ]
        first, last = self._ends
        try:
            logits: Tensor = self.network(x)
        except Exception as error:  # whatever its own code says of an input that does not fit
            if is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0]
            raise FreeTicketsError(
                f"MIMO: {self.members} inputs side by side do not fit {self._name}, whose first "
                f"layer should be {first!r}: {reason}"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        once = used.count(first) == used.count(last) == 1
        if [*used[:1], *used[-1:]] != [first, last] or not once:
            raise FreeTicketsError(
                f"MIMO: {self._name} must use {first!r} first and {last!r} last, once each, but "
                f"uses {', '.join(used)}: define its layers in the order in which they run"
            )
        if logits.ndim != 2:
            raise FreeTicketsError(
                f"MIMO: {self._name} must return scores of shape (N, classes), not "
                f"{tuple(logits.shape)}"
            )
        self._checked = True
        return logits


class _OneByOne(nn.Module):
    """Gives inputs that lie side by side to a module one by one, and puts its results likewise."""

    def __init__(self, module: nn.Module, times: int, axis: int) -> None:
        super().__init__()
        self.module, self._times, self._axis = module, times, axis

    def forward(self, x: Tensor) -> Tensor:
        parts = x.chunk(self._times, dim=self._axis)
        return torch.cat([self.module(part) for part in parts], dim=self._axis)


def _copies(values: Tensor, times: int) -> list[Tensor]:
    return [values.detach(), *(redrawn(values) for _ in range(times - 1))]


def _widen_inputs(layer: WeightLayer, times: int) -> None:
    # As many more inputs, each of less weight: the outputs keep their size.
    wide = torch.cat(_copies(layer.weight, times), dim=1) / math.sqrt(times)
    layer.weight = nn.Parameter(wide)
    if isinstance(layer, nn.Linear):
        layer.in_features *= times
        return
    if layer.groups != 1 and times > 1:
        raise FreeTicketsError("MIMO: the first convolution must not be grouped (groups=1)")
    layer.in_channels *= times
