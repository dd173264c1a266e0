"""Networks whose code looks at sizes, and does one thing or another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


@member("sizes", (3, 12, 12))
class HalvedIfLarge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = conv(3, 8), unit(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        assert x.dim() == 4
        x = self.conv1(x)
        if x.shape[-1] > 8:
            x = F.max_pool2d(x, 2)
        if x.size(2) == x.size(3) and x.ndim == 4:
            x = self.conv2(x)
        return self.fc(x.mean((2, 3)))


@member("sizes", (3, 16, 16))
class UntilSmall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.step, self.fc = conv(3, 8), unit(8, 8), nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        while x.size(-1) > 4:
            x = F.avg_pool2d(self.step(x) + x, 2)
        return self.fc(x.view(len(x), -1))


@member("sizes", (3, 11, 9))
class PaddedToMultiple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up, self.fc = conv(3, 8, stride=2), conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        _, _, h, w = x.shape
        below, right = -h % 4, -w % 4
        x = F.pad(x, (0, right, 0, below))
        x = F.relu(self.conv(x))
        x = self.up(F.interpolate(x, size=(h + below, w + right)))[:, :, :h, :w]
        return self.fc(F.avg_pool2d(x, (h // 2, w // 2), stride=1).flatten(2).sum(2))


@member("sizes", (3, 8, 8))
class FewOrMany(nn.Module):
    """What is done depends on how many samples there are."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.few, self.many = conv(3, 8), conv(8, 8), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = self.few(x) if x.shape[0] <= 4 else self.many(x) / len(x)
        if len(x) % 2:
            x = x.relu()
        return self.fc(x.mean((2, 3)))


@member("sizes", (4, 8, 8))
class LoopOverChannels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.each, self.fc = conv(4, 8), conv(2, 3), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        parts = []
        for i in range(x.shape[1] // 2):
            parts.append(self.each(x[:, 2 * i : 2 * i + 2]))
        x = torch.cat(parts, dim=1)
        return self.fc(x.relu().sum((2, 3)) / (x.shape[2] * x.shape[3]))


@member("sizes", (3, 8, 8))
class Tutorial(nn.Module):
    """PyTorch's own tutorial counted the features of a map in this way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.fc = conv(3, 8), conv(8, 8), nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv2(F.max_pool2d(F.relu(self.conv1(x)), (2, 2)))
        return self.fc(x.view(-1, self.num_flat_features(x)))

    def num_flat_features(self, x: Tensor) -> int:
        size = x.size()[1:]
        num_features = 1
        for s in size:
            num_features *= s
        return num_features
