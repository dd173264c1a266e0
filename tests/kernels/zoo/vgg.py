"""Networks that only stack convolutions and pools."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member


def make_layers(cfg: list[Any], norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for v in cfg:
        if v == "M":
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        else:
            conv = nn.Conv2d(channels, v, kernel_size=3, padding=1)
            layers += [conv, nn.BatchNorm2d(v)] if norm else [conv]
            layers += [nn.ReLU(inplace=True)]
            channels = v
    return nn.Sequential(*layers)


@member("vgg", (3, 16, 16), random=True)
class Torchvision(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = make_layers([8, "M", 8, 12, "M", 16, 16, "M"], norm=True)
        self.avgpool = nn.AdaptiveAvgPool2d((2, 2))
        self.classifier = nn.Sequential(
            nn.Linear(64, 24), nn.ReLU(True), nn.Dropout(p=0.5),
            nn.Linear(24, 24), nn.ReLU(True), nn.Dropout(p=0.5), nn.Linear(24, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = self.avgpool(x)
        return self.classifier(torch.flatten(x, 1))


@member("vgg", (3, 14, 12))
class Plain(nn.Module):
    """No norms, everything by functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(16 * 4 * 1, 20)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x), inplace=True), (1, 2))
        x = x.view(x.size(0), -1)
        return F.log_softmax(self.fc2(torch.relu(self.fc1(x))), dim=1)


@member("vgg", (3, 12, 12))
def all_convolutional() -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 8, 3, padding=1), relu1=nn.ReLU(),
            conv2=nn.Conv2d(8, 8, 3, stride=2, padding=1), relu2=nn.ReLU(),
            conv3=nn.Conv2d(8, 16, 3, stride=2), relu3=nn.ReLU(),
            classes=nn.Conv2d(16, 10, 1), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(),
        )
    )  # fmt: skip


@member("vgg", (1, 14, 14))
def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2, 2), nn.Conv2d(6, 12, 3),
        nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 30), nn.Tanh(), nn.Linear(30, 10),
        nn.LogSoftmax(dim=1),
    )  # fmt: skip


@member("vgg", (3, 12, 12))
class PoolThenNorm(nn.Module):
    """Convolution, pool, norm and ReLU, in this order."""

    def __init__(self, widths: tuple[int, ...] = (3, 8, 12)) -> None:
        super().__init__()
        for i, (a, b) in enumerate(pairwise(widths)):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, 3, padding=1))
            setattr(self, f"norm{i}", nn.BatchNorm2d(b))
        self.depth = len(widths) - 1
        self.fc = nn.Linear(widths[-1] * 9, 10)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(self.depth):
            x = F.max_pool2d(getattr(self, f"conv{i}")(x), 2, 2)
            x = getattr(self, f"norm{i}")(x).relu_()
        return self.fc(x.flatten(start_dim=1))
