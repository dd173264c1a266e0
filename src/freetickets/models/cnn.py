"""A small convolutional network: minutes on a laptop, for trials, tests and examples."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def cnn(
    input_shape: tuple[int, ...], classes: int, *, width: int = 32, dropout: float = 0.0
) -> nn.Sequential:
    """Builds three stages of convolution, BatchNorm, ReLU and pooling, and a linear classifier.

    Args:
        input_shape: `(channels, height, width)` of one image, at least 8x8.
        classes: How many outputs.
        width: The channels of the first stage; each stage has twice as many as the last.
        dropout: The rate in front of the classifier.

    Example:
        >>> list(dict(cnn((1, 28, 28), 10).named_children()))
        ['stage1', 'stage2', 'stage3', 'pool', 'flatten', 'dropout', 'fc']
    """

    def stage(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            OrderedDict(
                conv=nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
                bn=nn.BatchNorm2d(outputs),
                relu=nn.ReLU(inplace=True),
                pool=nn.MaxPool2d(2),
            )
        )

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
