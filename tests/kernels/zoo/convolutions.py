"""Convolutions with all their options."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, stride), nn.BatchNorm2d(outputs), nn.ReLU())


def depthwise(width: int, stride: int = 1, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), nn.BatchNorm2d(width),
        activation(inplace=True),
    )  # fmt: skip


@member("convolutions", (3, 12, 12))
def mobilenet() -> nn.Module:
    def pointwise(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    return nn.Sequential(
        unit(3, 8), depthwise(8), pointwise(8, 12), depthwise(12, 2), pointwise(12, 16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
    )  # fmt: skip


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, ratio: int) -> None:
        super().__init__()
        hidden = inputs * ratio
        self.use_res_connect = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(True),
            depthwise(hidden, stride, nn.ReLU6),
            nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        if self.use_res_connect:
            return x + self.conv(x)
        return self.conv(x)


@member("convolutions", (3, 12, 12))
def mobilenet_v2() -> nn.Module:
    return nn.Sequential(
        unit(3, 8, 2), InvertedResidual(8, 8, 1, 2), InvertedResidual(8, 12, 2, 2),
        InvertedResidual(12, 12, 1, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
    )  # fmt: skip


@member("convolutions", (3, 10, 10))
class ResNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.reduce, self.expand = unit(3, 8), nn.Conv2d(8, 12, 1), nn.Conv2d(12, 8, 1)
        self.grouped, self.bn = nn.Conv2d(12, 12, 3, padding=1, groups=4), nn.BatchNorm2d(12)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu(self.bn(self.grouped(F.relu(self.reduce(x)))))
        return self.fc(F.relu(x + self.expand(y)).mean((2, 3)))


@member("convolutions", (3, 12, 12), least=2)
class Aspp(nn.Module):
    """Dilations side by side, and the mean of the whole image spread out again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 8)
        self.branches = nn.ModuleList([nn.Conv2d(8, 4, 1), *(
            nn.Conv2d(8, 4, 3, padding=d, dilation=d) for d in (1, 2, 4)
        )])  # fmt: skip
        self.image = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
        )
        self.project = nn.Conv2d(20, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        maps = [F.relu(branch(x)) for branch in self.branches]
        pooled = F.interpolate(self.image(x), size=x.shape[-2:], mode="nearest")
        return self.project(torch.cat([*maps, pooled], dim=1))


def same(inputs: int, outputs: int, kernel: Any, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding="same", **options)


@member("convolutions", (3, 9, 9))
def paddings() -> nn.Module:
    """By name, and borders that go around, are mirrored, are repeated."""
    return nn.Sequential(
        same(3, 8, 3), nn.ReLU(), same(8, 8, 2), nn.ReLU(), same(8, 8, 3, dilation=2), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=(1, 2), padding_mode="reflect"), nn.ReLU(),
        same(8, 8, 3, padding_mode="replicate"), nn.ReLU(), nn.Conv2d(8, 8, 3, padding="valid"),
        nn.ZeroPad2d((1, 0, 2, 1)), conv(8, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )  # fmt: skip


@member("convolutions", (3, 14, 11))
def asymmetric() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, (1, 7), padding=(0, 3)), nn.Conv2d(8, 8, (7, 1), padding=(3, 0)),
        nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, (3, 2), stride=(2, 1), padding=(0, 1)),
        nn.ReLU(), nn.Conv2d(8, 8, (2, 5), stride=(1, 3), padding=(2, 1)), nn.ReLU(), nn.Flatten(),
        nn.Linear(288, 5),
    )  # fmt: skip


@member("convolutions", (3, 16, 16))
def strides() -> nn.Module:
    """Longer than the kernel; a border wider than the kernel; a kernel as large as the map."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 1, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 2, stride=3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 1, padding=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 5, 2, 4),
        nn.ReLU(),
        nn.Conv2d(8, 12, 6), nn.Flatten(), nn.ReLU(), nn.Linear(12, 5),
    )  # fmt: skip


@member("convolutions", (3, 8, 8))
class OneByOne(nn.Module):
    """Samples without a batch go through a convolution, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.fc = unit(3, 8), conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.stack([self.conv(sample) for sample in self.stem(x)])
        return self.fc(x.relu().mean((2, 3)))


@member("convolutions", (3, 8, 8))
class OtherDimensions(nn.Module):
    """Convolutions of one and three dimensions, and functions with weights of a module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.line, self.volume = (
            conv(3, 8),
            nn.Conv1d(8, 8, 3, padding=1),
            nn.Conv3d(1, 2, 3),
        )
        self.plain, self.fc = conv(8, 8), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        n, c, h, w = x.shape
        x = self.line(x.view(n, c, h * w)).view(n, c, h, w)
        x = F.conv2d(x, self.plain.weight, self.plain.bias, padding=2)
        x = self.volume(x.unsqueeze(1)).flatten(1, 2)
        return self.fc(x.relu().mean((2, 3)))


@member("convolutions", (3, 12, 12))
def convmixer() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self, fn: nn.Module) -> None:
            super().__init__()
            self.fn = fn

        def forward(self, x: Tensor) -> Tensor:
            return self.fn(x) + x

    dim = 10
    return nn.Sequential(
        nn.Conv2d(3, dim, 2, 2), nn.GELU(), nn.BatchNorm2d(dim),
        *[nn.Sequential(
            Residual(nn.Sequential(
                nn.Conv2d(dim, dim, 5, groups=dim, padding="same"), nn.GELU(), nn.BatchNorm2d(dim)
            )),
            nn.Conv2d(dim, dim, 1), nn.GELU(), nn.BatchNorm2d(dim),
        ) for _ in range(2)],
        nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(dim, 5),
    )  # fmt: skip


@member("convolutions", (3, 10, 10))
class Shuffle(nn.Module):
    """Groups of channels that meet each other by a shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = unit(3, 12), nn.BatchNorm2d(12)
        self.squeeze, self.expand = (nn.Conv2d(12, 12, 1, groups=3, bias=False) for _ in "ab")
        self.middle, self.fc = depthwise(12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = F.relu(self.squeeze(x)).unflatten(1, (3, 4)).transpose(1, 2).flatten(1, 2)
        return self.fc(F.relu(x + self.bn(self.expand(self.middle(y)))).mean((2, 3)))


@member("convolutions", (3, 11, 11))
class Dilated(nn.Module):
    """Residual blocks that look further and further; the last ones in groups, too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.fc = unit(3, 8), nn.Linear(8, 5)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 8, 3, padding=d, dilation=d, groups=g), nn.BatchNorm2d(8), nn.ReLU(),
                nn.Conv2d(8, 8, 1),
            )
            for d, g in ((1, 1), (2, 1), (3, 2), ((2, 1), 4))
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.fc(x.mean((2, 3)))
