"""Gates, dense connections, concatenations: maps that part and meet again."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member

IMAGE = (3, 10, 10)


def conv(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def unit(inputs: int, outputs: int, kernel: int = 3) -> nn.Sequential:
    return nn.Sequential(
        conv(inputs, outputs, kernel, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class Classifier(nn.Module):
    """A body, then the mean over the map, then classes."""

    def __init__(self, body: nn.Module, channels: int) -> None:
        super().__init__()
        self.body, self.fc = body, nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.body(x).mean((2, 3)))


# ---- squeeze and excite


class SELayer(nn.Module):
    def __init__(self, channel: int, reduction: int = 4) -> None:
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(
            nn.Linear(channel, channel // reduction, bias=False), nn.ReLU(inplace=True),
            nn.Linear(channel // reduction, channel, bias=False), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        b, c, _, _ = x.size()
        y = self.avg_pool(x).view(b, c)
        y = self.fc(y).view(b, c, 1, 1)
        return x * y.expand_as(x)


class SEBlock(nn.Module):
    def __init__(self, gate: nn.Module, width: int = 8) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(width, width, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, bias=False), nn.BatchNorm2d(width)
        self.relu, self.se = nn.ReLU(inplace=True), gate

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.se(self.bn2(self.conv2(out)))
        out += x
        return self.relu(out)


@member("squeeze and excite", IMAGE)
def linear_gate() -> nn.Module:
    return Classifier(nn.Sequential(unit(3, 8), SEBlock(SELayer(8)), SEBlock(SELayer(8))), 8)


class ConvGate(nn.Module):
    """As MobileNetV3 and timm have it: by 1x1 convolutions."""

    def __init__(self, channels: int, squeeze: int = 4) -> None:
        super().__init__()
        self.fc1, self.act = nn.Conv2d(channels, squeeze, 1), nn.ReLU()
        self.fc2, self.scale_activation = nn.Conv2d(squeeze, channels, 1), nn.Hardsigmoid()

    def _scale(self, x: Tensor) -> Tensor:
        scale = x.mean((2, 3), keepdim=True)
        return self.scale_activation(self.fc2(self.act(self.fc1(scale))))

    def forward(self, x: Tensor) -> Tensor:
        return self._scale(x) * x


@member("squeeze and excite", IMAGE)
def conv_gate() -> nn.Module:
    body = [conv(3, 8), nn.Hardswish(), SEBlock(ConvGate(8)), conv(8, 8, stride=2), ConvGate(8)]
    return Classifier(nn.Sequential(*body), 8)


class ChannelConv(nn.Module):
    """ECA: a convolution along the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.adaptive_avg_pool2d(x, 1)
        y = self.conv(y.squeeze(-1).transpose(-1, -2)).transpose(-1, -2).unsqueeze(-1)
        return x * y.sigmoid()


@member("squeeze and excite", IMAGE)
def channel_conv_gate() -> nn.Module:
    return Classifier(nn.Sequential(unit(3, 8), SEBlock(ChannelConv()), conv(8, 8)), 8)


class SpatialAndChannel(nn.Module):
    """The larger of two gates: one for channels, one for places; in place."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())
        self.place = nn.Sequential(nn.Conv2d(8, 1, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return torch.max(x * self.channel(x), x.mul(self.place(x)))


@member("squeeze and excite", IMAGE)
def two_gates() -> nn.Module:
    return Classifier(nn.Sequential(unit(3, 8), SEBlock(SpatialAndChannel())), 8)


# ---- dense connections


class DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int, bn_size: int = 2) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, bn_size * growth, kernel_size=1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(bn_size * growth), nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(bn_size * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: Any) -> Tensor:
        previous = [features] if isinstance(features, Tensor) else features
        bottleneck = self.conv1(self.relu1(self.norm1(torch.cat(previous, 1))))
        return self.conv2(self.relu2(self.norm2(bottleneck)))


class DenseBlock(nn.ModuleDict):
    def __init__(self, layers: int, inputs: int, growth: int) -> None:
        super().__init__()
        for i in range(layers):
            self.add_module(f"denselayer{i + 1}", DenseLayer(inputs + i * growth, growth))

    def forward(self, init_features: Tensor) -> Tensor:
        features = [init_features]
        for _, layer in self.items():
            features.append(layer(features))
        return torch.cat(features, 1)


@member("dense connections", IMAGE)
def densenet() -> nn.Module:
    body = nn.Sequential()
    body.add_module("conv0", nn.Conv2d(3, 8, 3, padding=1, bias=False))
    body.add_module("denseblock1", DenseBlock(3, 8, 4))
    body.add_module("transition", nn.Sequential(
        nn.BatchNorm2d(20), nn.ReLU(inplace=True), nn.Conv2d(20, 10, 1, bias=False), nn.AvgPool2d(2)
    ))  # fmt: skip
    body.add_module("denseblock2", DenseBlock(2, 10, 4))
    body.add_module("norm5", nn.BatchNorm2d(18))
    return Classifier(body, 18)


@member("dense connections", (3, 8, 8))
class Growing(nn.Module):
    """x = cat([x, f(x)])."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(4)])
        self.fc = nn.Linear(19, 5)

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = torch.cat([x, F.relu(conv(x))], dim=1)
        return self.fc(torch.flatten(F.adaptive_max_pool2d(x, 1), 1))


@member("dense connections", (3, 9, 9))
class OneShot(nn.Module):
    """VoVNet: all maps of a block are joined once, at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = unit(3, 8)
        self.layers = nn.ModuleList([unit(8, 6), unit(6, 6), unit(6, 6)])
        self.join, self.fc = unit(8 + 18, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = identity = self.stem(x)
        outputs = [x]
        for layer in self.layers:
            x = layer(x)
            outputs.append(x)
        return self.fc((self.join(torch.cat(outputs, dim=1)) + identity).mean((2, 3)))


@member("dense connections", (3, 8, 8))
class SumsAndCats(nn.Module):
    """Dual paths: one part of the channels is added, the other one grows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.steps = nn.ModuleList([conv(8 + 3 * i, 8 + 3) for i in range(3)])
        self.fc = nn.Linear(17, 5)

    def forward(self, x: Tensor) -> Tensor:
        summed, grown = self.stem(x), []
        for step in self.steps:
            y = step(F.relu(torch.cat([summed, *grown], 1)))
            summed = summed + y[:, :8]
            grown.append(y[:, 8:])
        return self.fc(torch.cat((summed, *grown), -3).mean((2, 3)))


# ---- concatenation


class Inception(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branch1 = unit(inputs, 4, 1)
        self.branch3 = nn.Sequential(unit(inputs, 4, 1), unit(4, 6))
        self.branch5 = nn.Sequential(unit(inputs, 2, 1), unit(2, 3, 5))
        self.branch_pool = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), unit(inputs, 3, 1))

    def forward(self, x: Tensor) -> Tensor:
        branches = [self.branch1(x), self.branch3(x), self.branch5(x), self.branch_pool(x)]
        return torch.cat(branches, 1)


@member("concatenation", IMAGE)
def inception() -> nn.Module:
    return Classifier(nn.Sequential(unit(3, 8), Inception(8), nn.MaxPool2d(2), Inception(16)), 16)


class Fire(nn.Module):
    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1, self.expand3x3 = nn.Conv2d(squeeze, expand, 1), conv(squeeze, expand)
        self.expand_activation = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze_activation(self.squeeze(x))
        one, three = self.expand1x1(x), self.expand3x3(x)
        return torch.cat([self.expand_activation(one), self.expand_activation(three)], 1)


@member("concatenation", IMAGE)
def squeezenet() -> nn.Module:
    return nn.Sequential(
        conv(3, 8, stride=2), nn.ReLU(True), Fire(8, 4, 6), nn.MaxPool2d(3, 2, ceil_mode=True),
        Fire(12, 4, 6), nn.Conv2d(12, 5, 1), nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten(1),
    )  # fmt: skip


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    n, channels, height, width = x.size()
    x = x.view(n, groups, channels // groups, height, width)
    return torch.transpose(x, 1, 2).contiguous().view(n, channels, height, width)


class ShuffleUnit(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.branch2 = nn.Sequential(
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
            nn.Conv2d(half, half, 3, 1, 1, groups=half, bias=False), nn.BatchNorm2d(half),
            nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, dim=1)
        return channel_shuffle(torch.cat((x1, self.branch2(x2)), dim=1), 2)


@member("concatenation", (3, 8, 8))
def shufflenet() -> nn.Module:
    return Classifier(nn.Sequential(unit(3, 12), ShuffleUnit(12), ShuffleUnit(12), conv(12, 8)), 8)


@member("concatenation", IMAGE)
class Res2(nn.Module):
    """Parts of the channels, each of which adds to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = unit(3, 12)
        self.convs = nn.ModuleList([conv(4, 4) for _ in range(2)])
        self.leave, self.fc = unit(12, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = torch.split(self.enter(x), 4, dim=1)
        b = F.relu(self.convs[0](b))
        c = F.relu(self.convs[1](c + b))
        return self.fc(self.leave(torch.cat((a, b, c), 1)).mean((2, 3)))


@member("concatenation", IMAGE)
class Concatenated(nn.Module):
    """Along rows, along columns, x and -x; shuffled pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 8), conv(16, 8), conv(2, 8)
        self.shuffle, self.fc = nn.PixelShuffle(2), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        x = F.relu(torch.cat([x, -x], 1))
        x = self.b(x)
        x = torch.cat([x, x.flip(2)], dim=2)
        x = torch.cat((x, x[..., :2]), dim=-1)
        return self.fc(self.c(self.shuffle(x)).amax(dim=(2, 3)))


@member("concatenation", IMAGE)
class Ghost(nn.Module):
    """Half of a map made cheaply from the other half; too many channels cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.primary = unit(3, 8), unit(8, 5, 1)
        self.cheap = nn.Sequential(conv(5, 5, groups=5, bias=False), nn.BatchNorm2d(5), nn.ReLU())
        self.last, self.fc = conv(9, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.primary(self.stem(x))
        out = torch.cat([x1, self.cheap(x1)], dim=1)[:, :9, :, :]
        return self.fc(self.last(out).mean([-1, -2]))


@member("concatenation", IMAGE)
class Selected(nn.Module):
    """Paths of several kernels, stacked, and mixed as each sample wants."""

    def __init__(self) -> None:
        super().__init__()
        self.paths = nn.ModuleList([unit(3, 8, 3), unit(3, 8, 5)])
        self.fc1, self.fc2, self.last = nn.Linear(8, 6), nn.Linear(6, 16), conv(8, 8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        maps = torch.stack([path(x) for path in self.paths], 1)
        wish = self.fc2(F.relu(self.fc1(maps.sum(1).mean((2, 3)))))
        wish = torch.softmax(wish.view(-1, 2, 8), 1)
        y = torch.einsum("npchw,npc->nchw", maps, wish)
        return self.fc(F.relu(self.last(y)).mean((2, 3)))
