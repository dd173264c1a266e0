"""What is added to maps is not always a map of the same shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import integers, member

IMAGE = (3, 10, 10)


def conv(inputs: int, outputs: int, bias: bool = True) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias)


class Head(nn.Module):
    """Classes from a map, after one more convolution."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.conv = conv(channels, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(F.relu(self.conv(x)).mean(dim=[2, 3]))


@member("broadcast", IMAGE)
class ChannelBias(nn.Module):
    """A parameter (1, C, 1, 1) where others have a bias; one (C, 1, 1) from the left."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = conv(3, 8, bias=False), nn.BatchNorm2d(8)
        self.bias = nn.Parameter(torch.randn(1, 8, 1, 1))
        self.scale = nn.Parameter(torch.randn(1, 8, 1, 1))
        self.left = nn.Parameter(torch.randn(8, 1, 1))
        self.second, self.head = conv(8, 8, bias=False), Head()

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x)) + self.bias) * self.scale
        x = torch.relu(self.left + self.second(x))
        return self.head(x)


@member("broadcast", IMAGE)
class PositionMap(nn.Module):
    """A parameter (1, C, H, W) added to a convolution's output: once a segmentation fault."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = conv(3, 8)
        self.position = nn.Parameter(torch.randn(1, 8, 10, 10))
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x) + self.position)


@member("broadcast", IMAGE)
class PositionMapReLU(nn.Module):
    """The same with BatchNorm before and ReLU after, and a map without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = conv(3, 8), nn.BatchNorm2d(8)
        self.register_buffer("table", torch.linspace(-1, 1, 800).view(8, 10, 10))
        self.position = nn.Parameter(torch.randn(1, 8, 10, 10))
        self.second, self.head = conv(8, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(x)) + self.position)
        return self.head(torch.relu(self.second(x) + self.table))


@member("broadcast", IMAGE)
class Context(nn.Module):
    """A vector of each sample, (N, C, 1, 1), added to its map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.transform, self.head = conv(3, 8), nn.Conv2d(8, 8, 1), Head()

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        context = self.transform(x.mean((2, 3), keepdim=True))
        return self.head(torch.relu(x + context) + self.conv.bias.view(1, -1, 1, 1))


@member("broadcast", IMAGE)
class OneChannel(nn.Module):
    """A map of one channel added to one of many, from either side."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.one, self.other = conv(3, 8), conv(3, 1), conv(8, 1)
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        many = self.conv(x)
        many = F.relu(self.one(x) + many)
        return self.head(many + self.other(many))


@member("broadcast", IMAGE)
class Scalars(nn.Module):
    """Fixup: parameters of one number around convolutions without norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv1, self.conv2 = conv(3, 8), conv(8, 8, False), conv(8, 8, False)
        self.bias1a, self.bias1b, self.bias2a, self.bias2b = (
            nn.Parameter(torch.randn(1)) for _ in range(4)
        )
        self.scale = nn.Parameter(torch.ones(()))
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        identity = x = self.stem(x)
        out = F.relu(self.conv1(x + self.bias1a) + self.bias1b)
        out = self.conv2(out + self.bias2a) * self.scale + self.bias2b
        return self.head(F.relu(out + identity))


@member("broadcast", IMAGE)
class Numbers(nn.Module):
    """Python's numbers: constants and sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three, self.four = conv(3, 8), conv(8, 8), conv(8, 8), conv(8, 8)
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        x = self.one(x) + 0.5
        x = torch.relu(self.two(x) + x.shape[1])
        x = x.shape[-1] + self.three(x)
        x = torch.add(self.four(x), 3, alpha=2)
        return self.head(x) + x.size(1)


@member("broadcast", (3, 9, 7))
class RowsAndColumns(nn.Module):
    """An embedding for rows, (1, C, H, 1), one for columns, (1, C, 1, W); numbers of places."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(1, 8, 9, 1))
        self.columns = nn.Parameter(torch.randn(1, 8, 1, 7))
        self.conv, self.head = conv(3, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[3], dtype=x.dtype, device=x.device) / x.shape[3]
        x = self.conv(x) + places
        return self.head(x + (self.rows + self.columns))


@member("broadcast", IMAGE)
class LearntTemplate(nn.Module):
    """A batch of one, made by a convolution from a parameter, added to the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.template = nn.Parameter(torch.randn(1, 4, 10, 10))
        self.embed, self.conv, self.head = conv(4, 8), conv(3, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        template = self.embed(self.template)
        x = F.relu(self.conv(x) + template)
        return self.head(torch.add(template, x))


@member("broadcast", IMAGE)
class WeightedAddition(nn.Module):
    """torch.add with alpha, subtraction, and the sum of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.head = conv(3, 8), conv(3, 8), conv(8, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.add(self.a(x), self.b(x), alpha=-0.5).relu()
        y = y.add(self.c(y), alpha=2.0)
        return self.head(sum([y, self.b(x), self.a(x)]) - self.c(y))


@member("broadcast", IMAGE, integers(50))
class TimeEmbedding(nn.Module):
    """As in diffusion: a vector from a whole number, added to each place."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 6)
        self.project = nn.Sequential(nn.SiLU(), nn.Linear(6, 8))
        self.conv1, self.norm, self.conv2, self.head = (
            conv(3, 8),
            nn.GroupNorm(2, 8),
            conv(8, 8),
            Head(),
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        h = self.conv1(x)
        h = h + self.project(self.table(t))[:, :, None, None]
        return self.head(self.conv2(F.silu(self.norm(h))))
