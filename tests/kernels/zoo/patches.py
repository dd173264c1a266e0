"""Networks in which a batch is cut, folded or mixed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member

IMAGE = (3, 12, 12)


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2)


def unit(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


@member("patches", IMAGE)
class Unfolded(nn.Module):
    """Patches as samples, and their features as words of a sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 8))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        n, c = x.shape[:2]
        patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5)
        y = self.encoder(patches.reshape(-1, c, 4, 4))
        return self.fc(y.mean((2, 3)).view(n, 9, 8).amax(1))


@member("patches", IMAGE)
class Windows(nn.Module):
    """Whole maps, then windows of them, then whole maps: residuals on each level."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.inside, self.outside = conv(3, 8), unit(8, 8), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        n, c, h, w = x.shape
        s = 4
        windows = x.view(n, c, h // s, s, w // s, s).permute(0, 2, 4, 1, 3, 5).reshape(-1, c, s, s)
        windows = self.inside(windows) + windows
        y = windows.view(n, h // s, w // s, c, s, s).permute(0, 3, 1, 4, 2, 5).reshape(n, c, h, w)
        return self.fc(F.relu(self.outside(y) + x).mean((2, 3)))


@member("patches", (3, 11, 12))
class Quadrants(nn.Module):
    """Corners laid side by side in the batch; sums of the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = unit(3, 8), conv(8, 8), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, :, :8, :8], x[:, :, -8:, :8], x[:, :, :8, -8:], x[:, :, -8:, -8:]]
        y = self.b(self.a(torch.cat(corners, dim=0)))
        y = sum(torch.chunk(y, 4, dim=0))
        return self.fc(self.c(y).relu().mean((-2, -1)))


@member("patches", (3, 8, 8))
class Mirrored(nn.Module):
    """Each image and its mirror image, as one batch of twice the size."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = nn.Sequential(unit(3, 8), unit(8, 8)), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        n = x.shape[0]
        y = self.body(torch.cat([x, x.flip(3)]))
        y = self.last(y[:n] + y[n:].flip(3))
        return self.fc(F.adaptive_avg_pool2d(y, 1).view(n, -1))


@member("patches", (4, 3, 8, 8))
class Video(nn.Module):
    """Frames of a video go through a network for images."""

    def __init__(self) -> None:
        super().__init__()
        self.frame = nn.Sequential(unit(3, 8), nn.MaxPool2d(2), conv(8, 8), nn.AdaptiveAvgPool2d(1))
        self.score, self.fc = nn.Linear(8, 1), nn.Linear(8, 5)

    def forward(self, clips: Tensor) -> Tensor:
        b, t, *rest = clips.shape
        features = self.frame(clips.reshape(b * t, *rest)).flatten(1).unflatten(0, (b, t))
        weights = torch.softmax(self.score(features), dim=1)
        return self.fc((weights * features).sum(1))


@member("patches", (3, 8, 8))
class HalfOfTheSamples(nn.Module):
    """Some samples take a way of their own; all are compared with their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.extra, self.mean = conv(3, 8), conv(8, 8), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        half = (x.shape[0] + 1) // 2
        x = torch.cat([self.extra(x[:half]), x[half:]], 0)
        x = x + self.mean(x.mean(0, keepdim=True))
        return self.fc(x.relu().amax((2, 3)))


@member("patches", (2, 10, 10))
class ChannelsAsSamples(nn.Module):
    """Each channel is an image of its own; then dilation by folding places into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.fc = conv(1, 6), conv(12, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.size()
        y = self.one(x.reshape(n * c, 1, h, w)).relu().view(n, c * 6, h, w)
        y = y.view(n, 12, h // 2, 2, w // 2, 2).permute(3, 5, 0, 1, 2, 4).flatten(0, 2)
        y = self.two(y).view(2, 2, n, 8, h // 2, w // 2).mean((0, 1))
        return self.fc(y.flatten(2).mean(2))
