"""Small networks, minutes on a laptop: fully connected, for inputs of any shape; convolutional."""

from __future__ import annotations

import math
from collections import OrderedDict

from torch import nn


def mlp(
    input_shape: tuple[int, ...], classes: int, *, widths: tuple[int, ...], dropout: float = 0.0
) -> nn.Sequential:
    """Builds hidden layers of `widths` units with ReLU and dropout, and a linear classifier.

    Example:
        >>> list(dict(mlp((784,), 10, widths=(300, 100)).named_parameters()))
        ['fc1.weight', 'fc1.bias', 'fc2.weight', 'fc2.bias', 'fc.weight', 'fc.bias']
    """
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

    Example:
        >>> list(dict(cnn((1, 28, 28), 10).named_children()))
        ['stage1', 'stage2', 'stage3', 'pool', 'flatten', 'dropout', 'fc']
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
