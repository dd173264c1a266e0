"""A network that learns small images in few epochs, on few cores."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import UnknownNameError
from .whitening import Whitening

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "gelu": nn.GELU,
}


class Divide(nn.Module):
    """Divides by a constant."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        """Divides."""
        return x / self.by

    def extra_repr(self) -> str:
        """The constant, when the module is printed."""
        return f"by={self.by:g}"


def fast(
    input_shape: tuple[int, ...],
    classes: int,
    *,
    widths: tuple[int, int, int],
    activation: str = "relu",
    scale: float = 4.0,
    whitening_bias: bool = True,
) -> nn.Sequential:
    """Builds whitening, three groups of two convolutions with max-pooling, and a classifier.

    It is made for short trainings. The whitening is computed from training images before the first
    step (see `freetickets.models.prepare`). Each 3x3 convolution begins near the identity: its
    first filters, as many as it has inputs, pass on one input each, and a little of all others, as
    PyTorch draws it for any filter. So signals and gradients reach everything at once; without it,
    a random topology would leave most filters empty, and at 80 % sparsity nothing is learned. The
    identities that are left have by far the largest weights, so pruning by magnitude keeps them.

    BatchNorm's momentum of 0.1 means some 2,500 images at a batch of 128, which follow the weights
    fast enough in a training of a few epochs; batches of 1,024 would want a higher one.

    Args:
        input_shape: `(channels, height, width)` of one image, at least 9x9.
        classes: How many outputs.
        widths: The channels of the three groups.
        activation: "relu", which our kernels compute together with BatchNorm, or "gelu".
        scale: The logits are divided by it: the first steps then see soft predictions, and the
            classifier learns more slowly than the rest.
        whitening_bias: Whether the whitening has a bias, which is trained. Its few numbers cost a
            tenth of each step: without them, the first convolution needs no gradient of its inputs.

    Example:
        >>> model = fast((3, 32, 32), 10, widths=(64, 128, 128))
        >>> list(dict(model.named_children()))[:5]
        ['whitening', 'activation', 'group1', 'group2', 'group3']
    """
    if activation not in _ACTIVATIONS:
        raise UnknownNameError("activation", activation, _ACTIVATIONS)
    if not scale > 0:
        raise ValueError(f"its scale must be above 0, not {scale}")
    active = _ACTIVATIONS[activation]

    def group(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            OrderedDict(
                conv1=_near_identity(inputs, outputs),
                pool=nn.MaxPool2d(2),
                bn1=nn.BatchNorm2d(outputs),
                activation1=active(),
                conv2=_near_identity(outputs, outputs),
                bn2=nn.BatchNorm2d(outputs),
                activation2=active(),
            )
        )

    whitening = Whitening(input_shape[0], bias=whitening_bias)
    model = nn.Sequential(OrderedDict(whitening=whitening, activation=active()))
    for number, (inputs, outputs) in enumerate(pairwise((whitening.outputs, *widths)), start=1):
        model.add_module(f"group{number}", group(inputs, outputs))
    fc = nn.Linear(widths[-1], classes, bias=False)
    pool, flatten = nn.AdaptiveMaxPool2d(1), nn.Flatten()
    end: dict[str, nn.Module] = {"pool": pool, "flatten": flatten, "fc": fc, "scale": Divide(scale)}
    for name, module in end.items():
        model.add_module(name, module)
    return model


def _near_identity(inputs: int, outputs: int) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    with torch.no_grad():
        conv.weight[:, :, 1, 1].fill_diagonal_(1.0)
    return conv
