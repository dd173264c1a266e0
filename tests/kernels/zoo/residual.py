"""Residual networks, as all the world builds them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member

IMAGE = (3, 12, 12)


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, inplanes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


@member("residual", (3, 20, 20))
class MaxPoolStem(nn.Module):
    """As torchvision does it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, act_layer: type[nn.Module]) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.act1 = act_layer()
        self.conv2, self.bn2 = conv3x3(width, width, stride), nn.BatchNorm2d(width)
        self.drop_block = nn.Identity()
        self.act2 = act_layer()
        self.conv3, self.bn3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.act3 = act_layer()
        self.downsample = (
            nn.Sequential(nn.AvgPool2d(2, stride, ceil_mode=True, count_include_pad=False),
                          nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
            if stride > 1 else nn.Sequential(nn.Conv2d(inputs, outputs, 1), nn.Identity())
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.act2(self.drop_block(self.bn2(self.conv2(x))))
        x = self.bn3(self.conv3(x))
        x += self.downsample(shortcut)
        return self.act3(x)


@member("residual", (3, 13, 11))
class DeepStem(nn.Module):
    """As timm does ResNet-D: three small convolutions first, pools on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
            nn.Conv2d(4, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
            nn.Conv2d(4, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        )  # fmt: skip
        self.blocks = nn.Sequential(
            Bottleneck(8, 4, 1, nn.ReLU),
            Bottleneck(16, 4, 2, nn.ReLU),
            Bottleneck(16, 4, 1, nn.SiLU),
        )
        self.head = nn.Linear(16, 10)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.blocks(self.stem(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = x.mean((2, 3))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


class PreActBlock(nn.Module):
    def __init__(self, in_planes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = conv3x3(in_planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv2 = conv3x3(planes, planes)
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(x))
        shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
        out = self.conv1(out)
        out = self.conv2(F.relu(self.bn2(out)))
        out += shortcut
        return out


@member("residual", IMAGE)
class PreActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = conv3x3(3, 8)
        self.layer1 = self._make_layer(8, 8, 2, 1)
        self.layer2 = self._make_layer(8, 16, 2, 2)
        self.bn = nn.BatchNorm2d(16)
        self.linear = nn.Linear(16, 10)

    def _make_layer(self, inputs: int, planes: int, count: int, stride: int) -> nn.Sequential:
        layers = [PreActBlock(inputs, planes, stride)]
        layers += [PreActBlock(planes, planes) for _ in range(1, count)]
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer2(self.layer1(self.conv1(x)))
        out = F.avg_pool2d(F.relu(self.bn(out)), 4)
        out = out.view(out.size(0), 16, -1).sum(-1)
        return self.linear(out)


class LambdaLayer(nn.Module):
    def __init__(self, lambd: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        return self.lambd(x)


class CifarBlock(nn.Module):
    def __init__(self, in_planes: int, planes: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(in_planes, planes, stride), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv3x3(planes, planes), nn.BatchNorm2d(planes)
        self.shortcut: nn.Module = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = LambdaLayer(
                lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, planes // 4, planes // 4))
            )

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


@member("residual", IMAGE)
class Functional(nn.Module):
    """The CIFAR networks of the first paper, with shortcuts that have no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv3x3(3, 8), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(CifarBlock(8, 8), CifarBlock(8, 8))
        self.layer2 = nn.Sequential(CifarBlock(8, 16, 2), CifarBlock(16, 16))
        self.linear = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.layer2(self.layer1(out))
        out = F.avg_pool2d(out, out.size()[3])
        out = out.view(out.size(0), -1)
        return self.linear(out)


class WideBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, drop: float = 0.0) -> None:
        super().__init__()
        self.bn1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn2, self.relu2 = nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
        self.conv2 = conv3x3(outputs, outputs)
        self.drop_rate = drop
        self.equal = inputs == outputs
        self.conv_shortcut = (not self.equal and nn.Conv2d(inputs, outputs, 1, stride)) or None

    def forward(self, x: Tensor) -> Tensor:
        if not self.equal:
            x = self.relu1(self.bn1(x))
            out = self.relu2(self.bn2(self.conv1(x)))
        else:
            out = self.relu1(self.bn1(x))
            out = self.relu2(self.bn2(self.conv1(out)))
        if self.drop_rate > 0:
            out = F.dropout(out, p=self.drop_rate, training=self.training)
        out = self.conv2(out)
        return torch.add(x if self.equal else self.conv_shortcut(x), out)


@member("residual", (3, 8, 8))
def wide() -> nn.Module:
    return nn.Sequential(
        conv3x3(3, 8), WideBlock(8, 12, 1), WideBlock(12, 12, 1), WideBlock(12, 16, 2),
        nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 10),
    )  # fmt: skip


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.fn = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.fn(x) + x


@member("residual", (1, 9, 9))
def sequential() -> nn.Module:
    def block(width: int) -> nn.Module:
        return Residual(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
        )  # fmt: skip

    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), block(8), nn.ReLU(), nn.MaxPool2d(2), block(8), nn.ReLU(),
        Residual(Residual(nn.Conv2d(8, 8, 1))), nn.Flatten(), nn.Linear(8 * 16, 10),
    )  # fmt: skip


@member("residual", IMAGE)
class Methods(nn.Module):
    """Sums and ReLUs as methods of a tensor; a chain of additions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 10, 3, 1, 1)
        self.convs = nn.ModuleList([nn.Conv2d(10, 10, 3, padding=1) for _ in range(3)])
        self.bns = nn.ModuleList([nn.BatchNorm2d(10) for _ in range(3)])
        self.out = nn.Linear(10, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = first = self.stem(x).relu()
        for conv, bn in zip(self.convs, self.bns, strict=True):
            x = bn(conv(x)).add(x).relu_().add(first)
        return self.out(x.flatten(2).mean(-1))
