"""Small networks: fully connected, for inputs of any shape; convolutional; and one that is fast."""

import math
from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import check_known
from .prepare import Whitening


def mlp(
    input_shape: tuple[int, ...], classes: int, *, widths: tuple[int, ...], dropout: float = 0.0
) -> nn.Sequential:
    """Builds hidden layers of `widths` units with ReLU and dropout, and a linear classifier."""
    model = nn.Sequential()
    model.add_module("flatten", nn.Flatten())
    inputs = math.prod(input_shape)
    for layer, width in enumerate(widths, start=1):
        model.add_module(f"fc{layer}", nn.Linear(inputs, width))
        model.add_module(f"relu{layer}", nn.ReLU(inplace=True))
        model.add_module(f"dropout{layer}", nn.Dropout(dropout))
        inputs = width
    model.add_module("fc", nn.Linear(inputs, classes))
    return model


def cnn(
    input_shape: tuple[int, ...], classes: int, *, width: int = 32, dropout: float = 0.0
) -> nn.Sequential:
    """Builds three stages of convolution, BatchNorm, ReLU and pooling, and a linear classifier.

    Each stage has twice as many channels as the last; dropout is in front of the classifier.
    """

    def stage(inputs: int, outputs: int) -> nn.Sequential:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        bn, relu, pool = nn.BatchNorm2d(outputs), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        return nn.Sequential(OrderedDict(conv=conv, bn=bn, relu=relu, pool=pool))

    return nn.Sequential(
        OrderedDict(
            stage1=stage(input_shape[0], width),
            stage2=stage(width, 2 * width),
            stage3=stage(2 * width, 4 * width),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            dropout=nn.Dropout(dropout),
            fc=nn.Linear(4 * width, classes),
        )
    )


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
    input_shape: tuple[int, ...], classes: int, *, widths: tuple[int, int, int],
    activation: str = "relu", scale: float = 4.0, whitening_bias: bool = True,
) -> nn.Sequential:  # fmt: skip
    """Builds whitening, three groups of two convolutions with max-pooling, and a classifier.

    It is made for short trainings on few cores. The whitening is computed from training images
    before the first step (see `freetickets.models.prepare`). Each 3x3 convolution begins near the
    identity: its first filters, as many as it has inputs, pass on one input each, and a little of
    all others, as PyTorch draws it for any filter. So signals and gradients reach everything at
    once; without it, a random topology would leave most filters empty, and at 80 % sparsity nothing
    is learned. The identities that are left have by far the largest weights, so pruning by
    magnitude keeps them.

    BatchNorm's momentum of 0.1 means some 2,500 images at a batch of 128, which follow the weights
    fast enough in a training of a few epochs; batches of 1,024 would want a higher one.

    The activation is "relu", which our kernels compute together with BatchNorm, or "gelu". The
    logits are divided by `scale`: the first steps then see soft predictions, and the classifier
    learns more slowly than the rest. The whitening's bias, which is trained, costs a tenth of each
    step: without it, the first convolution needs no gradient of its inputs.
    """
    check_known("activation", activation, ("relu", "gelu"))
    if not scale > 0:
        raise ValueError(f"its scale must be above 0, not {scale}")

    def active() -> nn.Module:
        return nn.GELU() if activation == "gelu" else nn.ReLU(inplace=True)

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
    pairs = pairwise((whitening.conv.out_channels, *widths))
    groups = {f"group{n}": group(*pair) for n, pair in enumerate(pairs, start=1)}
    return nn.Sequential(
        OrderedDict(
            whitening=whitening,
            activation=active(),
            **groups,
            pool=nn.AdaptiveMaxPool2d(1),
            flatten=nn.Flatten(),
            fc=nn.Linear(widths[-1], classes, bias=False),
            scale=Divide(scale),
        )
    )


def _near_identity(inputs: int, outputs: int) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    with torch.no_grad():
        conv.weight[:, :, 1, 1].fill_diagonal_(1.0)
    return conv
