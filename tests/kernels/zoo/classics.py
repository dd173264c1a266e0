"""Networks as all the world builds them: residual, dense, shuffled, with gates."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from freetickets.models import create_model

from .entry import Sketch, chain, conv, member, norm, takes, unit


def classifier(*body, channels=8):
    """A body, then the mean over the map, then classes."""
    return *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)


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


chain("residual: torchvision", (3, 20, 20), lambda: classifier(
    nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True),
    nn.MaxPool2d(3, 2, 1), BasicBlock(8, 8), BasicBlock(8, 8), BasicBlock(8, 16, 2),
    BasicBlock(16, 16), channels=16,
))  # fmt: skip


class Residual(Sketch, kind="residual"):
    image = (3, 12, 12)

    def pre_activation(self, x):
        x = self.conv(3)(x)
        for inputs, planes, stride in ((8, 8, 1), (8, 16, 2), (16, 16, 1)):
            out = F.relu(self.BatchNorm2d(inputs)(x))
            shortcut = x if stride == 1 else self.Conv2d(inputs, planes, 1, stride, bias=False)(out)
            out = self.BatchNorm2d(planes)(self.conv(inputs, planes, stride=stride)(out))
            x = self.conv(planes, planes)(F.relu(out))
            x += shortcut
        out = F.avg_pool2d(F.relu(self.BatchNorm2d(16)(x)), 3)
        return self.Linear(16, 5)(out.view(out.size(0), 16, -1).sum(-1))

    def functional(self, x):
        """The blocks of the first paper, with shortcuts that have no weights."""
        x = self.unit(3)(x)
        for planes, stride in ((8, 1), (16, 2)):
            out = F.relu(self.BatchNorm2d(planes)(self.conv(8, planes, stride=stride)(x)))
            out = self.BatchNorm2d(planes)(self.conv(planes, planes)(out))
            out += x if stride == 1 else F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4))
            x = F.relu(out)
        return self.Linear(16, 5)(x.mean((2, 3)))

    @takes((3, 10, 10))
    def methods(self, x):
        """Sums and ReLUs as methods of a tensor; a chain of additions."""
        x = first = self.conv(3)(x).relu()
        for _ in range(2):
            one, bn = self.conv(), self.norm()
            x = bn(one(x)).add(x).relu_().add(first)
        return self.Linear(8, 5)(x.flatten(2).mean(-1))


# One of the library's own.
for act in ("relu", "gelu"):
    member(f"residual: fast_{act}", (3, 32, 32), least=2)(
        partial(create_model, "fast-4-8-8", (3, 32, 32), 10, activation=act)
    )


# ---- only convolutions and pools

pool = partial(nn.MaxPool2d, kernel_size=2, stride=2)

chain("vgg: with_norms", (3, 16, 16), lambda: [
    unit(3, 8), pool(), unit(8, 8), unit(8, 12), pool(), unit(12, 16), pool(),
    nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.Linear(64, 24), nn.ReLU(True),
    nn.Dropout(p=0.5), nn.Linear(24, 10),
], random=True)  # fmt: skip

chain("vgg: all_convolutional", (3, 12, 12), lambda: [
    conv(3), nn.ReLU(), conv(stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
    nn.Conv2d(16, 10, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
])  # fmt: skip

chain("vgg: lenet", (1, 14, 14), lambda: [
    conv(1, 6, 5), nn.Tanh(), nn.AvgPool2d(2, 2), nn.Conv2d(6, 12, 3), nn.Tanh(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(48, 30), nn.Tanh(), nn.Linear(30, 10), nn.LogSoftmax(dim=1),
])  # fmt: skip


class Vgg(Sketch, kind="vgg"):
    @takes((3, 14, 12))
    def plain(self, x):
        """No norms, everything by functions."""
        x = F.max_pool2d(F.relu(self.Conv2d(3, 8, 3)(x)), 2)
        x = F.max_pool2d(F.relu(self.Conv2d(8, 16, 3)(x), inplace=True), (1, 2))
        x = x.view(x.size(0), -1)
        return F.log_softmax(self.Linear(20, 10)(torch.relu(self.Linear(64, 20)(x))), dim=1)

    @takes((3, 12, 12))
    def pool_then_norm(self, x):
        for inputs in (3, 8):
            x = F.max_pool2d(self.conv(inputs)(x), 2, 2)
            x = self.norm()(x).relu_()
        return self.fc(x)


class SqueezeAndExcite(Sketch, kind="squeeze and excite"):
    image = (3, 10, 10)

    def _block(self, x, gate):
        relu = self.inplace()
        out = relu(self.norm()(self.conv()(x)))
        out = gate(self.norm()(self.conv()(out)))
        out += x
        return relu(out)

    def _linear_gate(self, x):
        b, c, _, _ = x.size()
        y = self.inplace()(self.Linear(8, 2)(self.AdaptiveAvgPool2d(1)(x).view(b, c)))
        return x * self.Sigmoid()(self.Linear(2, 8)(y)).view(b, c, 1, 1).expand_as(x)

    def _conv_gate(self, x):
        """As MobileNetV3 and timm have it: by 1x1 convolutions."""
        y = F.relu(self.conv(8, 4, 1)(x.mean((2, 3), keepdim=True)))
        return self.Hardsigmoid()(self.conv(4, 8, 1)(y)) * x

    def _two_gates(self, x):
        """The larger of one for channels (ECA: a convolution along them) and one for places."""
        y = F.adaptive_avg_pool2d(x, 1).squeeze(-1).transpose(-1, -2)
        y = self.Conv1d(1, 1, 3, padding=1)(y).transpose(-1, -2).unsqueeze(-1)
        return torch.max(x * y.sigmoid(), x.mul(torch.sigmoid(self.conv(8, 1, 1)(x))))

    def linear_gate(self, x):
        x = self._block(self.unit(3)(x), self._linear_gate)
        return self.fc(self._block(x, self._linear_gate))

    def conv_gate(self, x):
        x = self._block(self.Hardswish()(self.conv(3)(x)), self._conv_gate)
        return self.fc(self._conv_gate(self.conv(stride=2)(x)))

    def two_gates(self, x):
        return self.fc(self._block(self.unit(3)(x), self._two_gates))


# ---- concatenation


class DenseBlock(nn.ModuleDict):
    """Each layer reads what all before it have made."""

    def __init__(self, count, inputs):
        super().__init__({
            f"layer{i}": nn.Sequential(
                nn.BatchNorm2d(inputs + i * 4), nn.ReLU(inplace=True),
                conv(inputs + i * 4, 8, 1, bias=False), norm(), nn.ReLU(inplace=True), conv(8, 4),
            ) for i in range(count)
        })  # fmt: skip

    def forward(self, init_features):
        features = [init_features]
        for _, layer in self.items():
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


chain("concatenation: densenet", (3, 10, 10), lambda: classifier(
    conv(3), DenseBlock(3, 8), nn.BatchNorm2d(20), nn.ReLU(inplace=True), nn.Conv2d(20, 10, 1),
    nn.AvgPool2d(2), DenseBlock(2, 10), nn.BatchNorm2d(18), channels=18,
))  # fmt: skip


class Concatenation(Sketch, kind="concatenation"):
    image = (3, 10, 10)

    @takes((3, 8, 8))
    def sums_and_cats(self, x):
        """Dual paths: one part of the channels is added, the other one grows."""
        summed, grown = self.conv(3)(x), []
        for i in range(3):
            y = self.conv(8 + 3 * i, 11)(F.relu(torch.cat([summed, *grown], 1)))
            summed = summed + y[:, :8]
            grown.append(y[:, 8:])
        return self.Linear(17, 5)(torch.cat((summed, *grown), -3).mean((2, 3)))

    def inception(self, x):
        def module(inputs, x):
            branches = [
                self.unit(inputs, 4, 1)(x),
                self.unit(4, 6)(self.unit(inputs, 4, 1)(x)),
                self.unit(2, 3, 5)(self.unit(inputs, 2, 1)(x)),
                self.unit(inputs, 3, 1)(self.MaxPool2d(3, 1, 1, ceil_mode=True)(x)),
            ]
            return torch.cat(branches, 1)

        x = module(8, self.unit(3)(x))
        return self.Linear(16, 5)(module(16, F.max_pool2d(x, 2)).mean((2, 3)))

    @takes((3, 8, 8))
    def shufflenet(self, x):
        x = self.unit(3, 12)(x)
        for _ in range(2):
            x1, x2 = x.chunk(2, dim=1)
            x2 = self.BatchNorm2d(6)(self.conv(6, 6, groups=6)(self.unit(6, 6, 1)(x2)))
            y = torch.cat((x1, self.unit(6, 6, 1)(x2)), dim=1)
            n, channels, height, width = y.size()
            y = y.view(n, 2, channels // 2, height, width)
            x = torch.transpose(y, 1, 2).contiguous().view(n, channels, height, width)
        return self.fc(self.conv(12)(x))

    def res2(self, x):
        """Parts of the channels, each of which adds to the next."""
        a, b, c = torch.split(self.unit(3, 12)(x), 4, dim=1)
        b = F.relu(self.conv(4, 4)(b))
        c = F.relu(self.conv(4, 4)(c + b))
        return self.fc(self.unit(12, 8, 1)(torch.cat((a, b, c), 1)))

    def along_all_dimensions(self, x):
        """Along rows, along columns, x and -x; shuffled pixels."""
        x = self.conv(3)(x)
        x = self.conv(16)(F.relu(torch.cat([x, -x], 1)))
        x = torch.cat([x, x.flip(2)], dim=2)
        x = torch.cat((x, x[..., :2]), dim=-1)
        return self.Linear(8, 5)(self.conv(2)(self.PixelShuffle(2)(x)).amax(dim=(2, 3)))
