"""Layers that stand in several places, and dropout of all kinds."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member

IMAGE = (3, 8, 8)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


# ---- shared


@member("shared", IMAGE)
class ConvolutionTwice(nn.Module):
    """One convolution, but each time another norm after it; and once with ReLU, once without."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = conv(3, 8), conv(8, 8)
        self.bn1, self.bn2, self.fc = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(self.bn1(self.conv(x)))
        x = self.bn2(self.conv(x)) + x
        return self.fc(self.conv(x).mean((2, 3)))


@member("shared", IMAGE)
def block_thrice() -> nn.Module:
    block = unit(8, 8)
    return nn.Sequential(
        conv(3, 8), block, block, nn.MaxPool2d(2), block, nn.Flatten(), nn.Linear(128, 5)
    )


@member("shared", IMAGE)
class Tied(nn.Module):
    """Two layers with one weight, of which only one has a bias; a linear layer used backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = conv(3, 8), conv(8, 8), nn.Conv2d(8, 8, 3, bias=False)
        self.b.weight = self.a.weight
        self.code = nn.Linear(8, 6)
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.b(F.relu(self.a(self.stem(x)))))
        x = torch.tanh(self.code(x.mean((2, 3))))
        return F.linear(x, self.code.weight.t(), self.bias)


@member("shared", IMAGE)
class OneActivation(nn.Module):
    """One ReLU in place and one BatchNorm for everything."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = conv(3, 8), conv(8, 8), conv(8, 8)
        self.bn, self.relu, self.fc = nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn(self.conv1(x)))
        y = self.relu(self.bn(self.conv2(x)))
        y = self.bn(self.conv3(y)) + x
        return self.fc(self.relu(y).flatten(2).mean(2))


@member("shared", IMAGE)
class Recurrent(nn.Module):
    """A convolution that goes around, with a norm for each time."""

    def __init__(self, steps: int = 3) -> None:
        super().__init__()
        self.enter, self.again = conv(3, 8), conv(8, 8)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8) for _ in range(steps)])
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        first = state = self.enter(x)
        for norm in self.norms:
            state = F.relu(norm(self.again(state) + first))
        return self.fc(state.mean((2, 3)))


@member("shared", (3, 16, 16))
class OneHeadForAllSizes(nn.Module):
    """A detector's head on maps of several sizes, one tensor of all their places."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList([conv(3, 8, 2), conv(8, 8, 2), conv(8, 8, 2)])
        self.head = nn.Sequential(conv(8, 8), nn.ReLU(), conv(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for stage in self.stages:
            x = torch.relu(stage(x))
            y = self.head(x)
            found.append(y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, 4))
        return torch.cat(found, dim=1)


@member("shared", IMAGE, IMAGE)
class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(unit(3, 8), nn.MaxPool2d(2), unit(8, 8))
        self.fc = nn.Linear(8, 1)

    def once(self, x: Tensor) -> Tensor:
        return self.body(x).mean((2, 3))

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        u, v = self.once(a), self.once(b)
        return self.fc(torch.abs(u - v)).squeeze(-1), F.cosine_similarity(u, v)


@member("shared", IMAGE)
class TransposedTwin(nn.Module):
    """An autoencoder whose way back has the weights of the way there."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.post = nn.Conv2d(3, 8, 3, bias=False), conv(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.post(F.conv_transpose2d(F.relu(self.conv(x)), self.conv.weight))


# ---- dropout


@member("dropout", IMAGE, random=True)
def modules() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.Dropout2d(0.2), nn.ReLU(), nn.Dropout(0.3, inplace=True), conv(8, 8),
        nn.Dropout(0.1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout1d(0.2),
        nn.Linear(512, 5),
    )  # fmt: skip


@member("dropout", IMAGE, random=True)
def self_normalizing() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.SELU(), nn.FeatureAlphaDropout(0.1), conv(8, 8), nn.AlphaDropout(0.2),
        nn.SELU(inplace=True), nn.Flatten(), nn.Linear(512, 5),
    )  # fmt: skip


class Dropped(nn.Module):
    """Dropout by functions, of a rate that the network keeps."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.conv1, self.conv2 = rate, conv(3, 8), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(F.relu(self.conv1(x)), p=self.rate, training=self.training)
        x = F.dropout2d(self.conv2(x), self.rate, self.training)
        return self.fc(F.dropout(x.mean((2, 3)), 0.0))


@member("dropout", IMAGE, random=True)
def functions() -> nn.Module:
    return Dropped(0.4)


@member("dropout", IMAGE)
def functions_of_rate_zero() -> nn.Module:
    return Dropped(0.0)


class DropPath(nn.Module):
    """timm's: whole samples of a residual are left out."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep)


class Stochastic(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.blocks = nn.ModuleList([unit(8, 8) for _ in range(3)])
        self.drops = nn.ModuleList([DropPath(float(r)) for r in torch.linspace(0, rate, 3)])
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block, drop in zip(self.blocks, self.drops, strict=True):
            x = x + drop(block(x))
        return self.fc(x.mean((2, 3)))


@member("dropout", IMAGE, random=True)
def stochastic_depth() -> nn.Module:
    return Stochastic(0.3)


@member("dropout", IMAGE)
def stochastic_depth_of_rate_zero() -> nn.Module:
    return Stochastic(0.0)


@member("dropout", IMAGE)
def modules_of_rate_zero() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.Dropout2d(0.0), nn.ReLU(), conv(8, 8), nn.Dropout(0.0), nn.BatchNorm2d(8),
        nn.Dropout(0.0, inplace=True), nn.ReLU(True), nn.Flatten(), nn.Linear(512, 5),
    )  # fmt: skip
