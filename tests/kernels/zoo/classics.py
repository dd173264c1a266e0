"""Networks as all the world builds them."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import conv, layers, member, norm, several, unit

IMAGE = (3, 10, 10)


def classifier(*body, channels=8):
    """A body, then the mean over the map, then classes."""
    pool = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*body, pool, nn.Flatten(), nn.Linear(channels, 5))


# ---- residual networks


class BasicBlock(nn.Module):
    """As torchvision writes it: one ReLU for all of a block, a sum in place."""

    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = conv(inplanes, planes, stride=stride, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv(planes, planes, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


@member("residual", (3, 20, 20))
def torchvision():
    stem = [nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)]
    blocks = [BasicBlock(8, 8), BasicBlock(8, 8), BasicBlock(8, 16, 2), BasicBlock(16, 16)]
    return classifier(*stem, nn.MaxPool2d(3, 2, 1), *blocks, channels=16)


class PreActBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(in_planes), conv(in_planes, planes, stride=stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(planes), conv(planes, planes)
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False))

    def forward(self, x):
        out = F.relu(self.bn1(x))
        shortcut = self.shortcut(out) if hasattr(self, "shortcut") else x
        out = self.conv2(F.relu(self.bn2(self.conv1(out))))
        out += shortcut
        return out


def pre_act_blocks():
    return nn.Sequential(PreActBlock(8, 8), PreActBlock(8, 16, 2), PreActBlock(16, 16))


@member(
    "residual", (3, 12, 12),
    of=layers("stem", blocks=pre_act_blocks, bn=lambda: nn.BatchNorm2d(16),
              fc=lambda: nn.Linear(16, 5)),
)  # fmt: skip
def pre_activation(net, x):
    out = F.avg_pool2d(F.relu(net.bn(net.blocks(net.stem(x)))), 3)
    return net.fc(out.view(out.size(0), 16, -1).sum(-1))


class CifarBlock(nn.Module):
    """That of the first paper, with shortcuts that have no weights."""

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1, self.bn1 = conv(in_planes, planes, stride=stride), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes), nn.BatchNorm2d(planes)
        self.shortcut: Callable[[Tensor], Tensor] = (
            nn.Sequential()
            if stride == 1
            else lambda x: F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4))
        )

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


@member("residual", (3, 12, 12))
def functional():
    return classifier(unit(3), CifarBlock(8, 8), CifarBlock(8, 16, 2), channels=16)


@member("residual", IMAGE, of=layers("stem", convs=several(conv, conv), bns=several(norm, norm)))
def methods(net, x):
    """Sums and ReLUs as methods of a tensor; a chain of additions."""
    x = first = net.stem(x).relu()
    for one, bn in zip(net.convs, net.bns, strict=True):
        x = bn(one(x)).add(x).relu_().add(first)
    return net.fc(x.flatten(2).mean(-1))


# ---- only convolutions and pools


@member("vgg", (3, 16, 16), random=True)
def with_norms():
    pool = partial(nn.MaxPool2d, kernel_size=2, stride=2)
    return nn.Sequential(
        unit(3, 8), pool(), unit(8, 8), unit(8, 12), pool(), unit(12, 16), pool(),
        nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(64, 24), nn.ReLU(True),
        nn.Dropout(p=0.5), nn.Linear(24, 10),
    )  # fmt: skip


@member("vgg", (3, 14, 12), of={
    "conv1": lambda: nn.Conv2d(3, 8, 3), "conv2": lambda: nn.Conv2d(8, 16, 3),
    "fc1": lambda: nn.Linear(64, 20), "fc2": lambda: nn.Linear(20, 10),
})  # fmt: skip
def plain(net, x):
    """No norms, everything by functions."""
    x = F.max_pool2d(F.relu(net.conv1(x)), 2)
    x = F.max_pool2d(F.relu(net.conv2(x), inplace=True), (1, 2))
    x = x.view(x.size(0), -1)
    return F.log_softmax(net.fc2(torch.relu(net.fc1(x))), dim=1)


@member("vgg", (3, 12, 12))
def all_convolutional():
    return nn.Sequential(
        conv(3), nn.ReLU(), conv(stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.Conv2d(16, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


@member("vgg", (1, 14, 14))
def lenet():
    return nn.Sequential(
        conv(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2, 2), nn.Conv2d(6, 12, 3), nn.Tanh(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(48, 30), nn.Tanh(), nn.Linear(30, 10),
        nn.LogSoftmax(dim=1),
    )  # fmt: skip


@member("vgg", (3, 12, 12), of=layers("conv0 conv1", norm0=norm, norm1=norm))
def pool_then_norm(net, x):
    for i in range(2):
        x = F.max_pool2d(getattr(net, f"conv{i}")(x), 2, 2)
        x = getattr(net, f"norm{i}")(x).relu_()
    return net.fc(x.mean((2, 3)))


# ---- squeeze and excite


class SEBlock(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.conv1, self.bn1, self.conv2, self.bn2 = conv(), norm(), conv(), norm()
        self.relu, self.se = nn.ReLU(inplace=True), gate

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.se(self.bn2(self.conv2(out)))
        out += x
        return self.relu(out)


class LinearGate(nn.Module):
    def __init__(self):
        super().__init__()
        self.avg_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Sequential(nn.Linear(8, 2), nn.ReLU(True), nn.Linear(2, 8), nn.Sigmoid())

    def forward(self, x):
        b, c, _, _ = x.size()
        y = self.fc(self.avg_pool(x).view(b, c)).view(b, c, 1, 1)
        return x * y.expand_as(x)


@member("squeeze and excite", IMAGE)
def linear_gate():
    return classifier(unit(3), SEBlock(LinearGate()), SEBlock(LinearGate()))


class ConvGate(nn.Module):
    """As MobileNetV3 and timm have it: by 1x1 convolutions."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.scale = conv(8, 4, 1), conv(4, 8, 1), nn.Hardsigmoid()

    def forward(self, x):
        return self.scale(self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True))))) * x


@member("squeeze and excite", IMAGE)
def conv_gate():
    return classifier(conv(3), nn.Hardswish(), SEBlock(ConvGate()), conv(stride=2), ConvGate())


class TwoGates(nn.Module):
    """The larger of two gates: one for channels (ECA: a convolution along them), one for places."""

    def __init__(self):
        super().__init__()
        self.channel, self.place = nn.Conv1d(1, 1, 3, padding=1), conv(8, 1, 1)

    def forward(self, x):
        y = F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
        y = self.channel(y).transpose(-1, -2).unsqueeze(-1)
        return torch.max(x * y.sigmoid(), x.mul(torch.sigmoid(self.place(x))))


@member("squeeze and excite", IMAGE)
def two_gates():
    return classifier(unit(3), SEBlock(TwoGates()))
