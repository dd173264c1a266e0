"""Fully connected networks, for inputs of any shape."""

from __future__ import annotations

import math

from torch import nn


def mlp(
    input_shape: tuple[int, ...], classes: int, *, widths: tuple[int, ...], dropout: float = 0.0
) -> nn.Sequential:
    """Builds hidden layers of `widths` units with ReLU, and a linear classifier.

    Args:
        input_shape: The shape of one sample, which is flattened.
        classes: How many outputs.
        widths: The units of each hidden layer.
        dropout: The rate after each hidden layer.

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
