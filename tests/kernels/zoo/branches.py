"""Maps that part and meet again, and convolutions with all their options."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from .classics import classifier
from .entry import conv, layers, member, norm, one_by_one, several, unit

IMAGE = (3, 10, 10)


# ---- dense connections


class DenseLayer(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, 8, kernel_size=1, bias=False)
        self.norm2, self.relu2, self.conv2 = norm(), nn.ReLU(inplace=True), conv(8, 4)

    def forward(self, features):
        bottleneck = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu2(self.norm2(bottleneck)))


class DenseBlock(nn.ModuleDict):
    def __init__(self, count, inputs):
        super().__init__({f"layer{i}": DenseLayer(inputs + i * 4) for i in range(count)})

    def forward(self, init_features):
        features = [init_features]
        for _, layer in self.items():
            features.append(layer(features))
        return torch.cat(features, 1)


@member("concatenation", IMAGE)
def densenet():
    transition = nn.BatchNorm2d(20), nn.ReLU(inplace=True), nn.Conv2d(20, 10, 1), nn.AvgPool2d(2)
    blocks = DenseBlock(3, 8), *transition, DenseBlock(2, 10)
    return classifier(conv(3), *blocks, nn.BatchNorm2d(18), channels=18)


@member("concatenation", (3, 8, 8), of=layers(
    "stem", steps=several(*(partial(conv, 8 + 3 * i, 11) for i in range(3))),
    fc=lambda: nn.Linear(17, 5),
))  # fmt: skip
def sums_and_cats(net, x):
    """Dual paths: one part of the channels is added, the other one grows."""
    summed, grown = net.stem(x), []
    for step in net.steps:
        y = step(F.relu(torch.cat([summed, *grown], 1)))
        summed = summed + y[:, :8]
        grown.append(y[:, 8:])
    return net.fc(torch.cat((summed, *grown), -3).mean((2, 3)))


# ---- concatenation


class Inception(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.branch1 = unit(inputs, 4, 1)
        self.branch3 = nn.Sequential(unit(inputs, 4, 1), unit(4, 6))
        self.branch5 = nn.Sequential(unit(inputs, 2, 1), unit(2, 3, 5))
        self.branch_pool = nn.Sequential(nn.MaxPool2d(3, 1, 1, ceil_mode=True), unit(inputs, 3, 1))

    def forward(self, x):
        branches = [self.branch1(x), self.branch3(x), self.branch5(x), self.branch_pool(x)]
        return torch.cat(branches, 1)


@member("concatenation", IMAGE)
def inception():
    return classifier(unit(3), Inception(8), nn.MaxPool2d(2), Inception(16), channels=16)


class ShuffleUnit(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch2 = nn.Sequential(
            unit(6, 6, 1), conv(6, 6, groups=6), nn.BatchNorm2d(6), unit(6, 6, 1)
        )

    def forward(self, x):
        x1, x2 = x.chunk(2, dim=1)
        y = torch.cat((x1, self.branch2(x2)), dim=1)
        n, channels, height, width = y.size()
        y = y.view(n, 2, channels // 2, height, width)
        return torch.transpose(y, 1, 2).contiguous().view(n, channels, height, width)


@member("concatenation", (3, 8, 8))
def shufflenet():
    return classifier(unit(3, 12), ShuffleUnit(), ShuffleUnit(), conv(12))


@member("concatenation", IMAGE, of=layers(
    "", enter=partial(unit, 3, 12), convs=several(partial(conv, 4, 4), partial(conv, 4, 4)),
    leave=partial(unit, 12, 8, 1),
))  # fmt: skip
def res2(net, x):
    """Parts of the channels, each of which adds to the next."""
    a, b, c = torch.split(net.enter(x), 4, dim=1)
    b = F.relu(net.convs[0](b))
    c = F.relu(net.convs[1](c + b))
    return net.fc(net.leave(torch.cat((a, b, c), 1)).mean((2, 3)))


@member("concatenation", IMAGE, of=layers(
    "a", b=partial(conv, 16), c=partial(conv, 2), shuffle=lambda: nn.PixelShuffle(2)
))  # fmt: skip
def along_all_dimensions(net, x):
    """Along rows, along columns, x and -x; shuffled pixels."""
    x = net.a(x)
    x = net.b(F.relu(torch.cat([x, -x], 1)))
    x = torch.cat([x, x.flip(2)], dim=2)
    x = torch.cat((x, x[..., :2]), dim=-1)
    return net.fc(net.c(net.shuffle(x)).amax(dim=(2, 3)))


# ---- convolutions with all their options


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        hidden = 2 * inputs
        self.use_res_connect = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden), nn.BatchNorm2d(hidden),
            nn.ReLU6(True), nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


@member("convolutions", (3, 12, 12))
def mobilenet():
    blocks = [InvertedResidual(*each) for each in ((8, 8, 1), (8, 12, 2), (12, 12, 1))]
    return classifier(unit(3, stride=2), *blocks, channels=12)


@member("convolutions", (3, 12, 12), least=2, of={
    "stem": partial(unit, 3),
    "branches": several(
        one_by_one, *(partial(nn.Conv2d, 8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4)),
        partial(conv, groups=4),
    ),
    "image": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), unit(8, 4, 1)),
    "project": partial(conv, 44, 3, 1),
})  # fmt: skip
def dilations(net, x):
    """ASPP: dilations and groups side by side, and the mean of the whole image spread out again."""
    x = net.stem(x)
    maps = [F.relu(branch(x)) for branch in net.branches]
    pooled = F.interpolate(net.image(x), size=x.shape[-2:], mode="nearest")
    return net.project(torch.cat([*maps, pooled], dim=1))


@member("convolutions", (3, 9, 9))
def paddings():
    """By name, and borders that go around, are mirrored, are repeated."""
    same = partial(nn.Conv2d, padding="same")
    return classifier(
        same(3, 8, 3), nn.ReLU(), same(8, 8, 2), nn.ReLU(), same(8, 8, 3, dilation=2), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=(1, 2), padding_mode="reflect"), nn.ReLU(),
        same(8, 8, 3, padding_mode="replicate"), nn.ReLU(), nn.Conv2d(8, 8, 3, padding="valid"),
        nn.ZeroPad2d((1, 0, 2, 1)), conv(),
    )  # fmt: skip


@member("convolutions", (3, 14, 11))
def asymmetric():
    return nn.Sequential(
        nn.Conv2d(3, 8, (1, 7), padding=(0, 3)), nn.Conv2d(8, 8, (7, 1), padding=(3, 0)),
        nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, (3, 2), stride=(2, 1), padding=(0, 1)),
        nn.ReLU(), nn.Conv2d(8, 8, (2, 5), stride=(1, 3), padding=(2, 1)), nn.ReLU(), nn.Flatten(),
        nn.Linear(288, 5),
    )  # fmt: skip


@member("convolutions", (3, 16, 16))
def strides():
    """Longer than the kernel; a border wider than the kernel; a kernel as large as the map."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 1, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 2, stride=3, padding=1), nn.ReLU(),
        nn.Conv2d(8, 8, 1, padding=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 5, 2, 4),
        nn.ReLU(), nn.Conv2d(8, 12, 6), nn.Flatten(), nn.ReLU(), nn.Linear(12, 5),
    )  # fmt: skip


@member("convolutions", (3, 8, 8), of=layers("stem conv"))
def samples_alone(net, x):
    """Samples without a batch go through a convolution, one after the other."""
    x = torch.stack([net.conv(sample) for sample in F.relu(net.stem(x))])
    return net.fc(x.relu().mean((2, 3)))


@member("convolutions", (3, 8, 8), of=layers(
    "stem plain", line=lambda: nn.Conv1d(8, 8, 3, padding=1), volume=lambda: nn.Conv3d(1, 2, 3),
    fc=lambda: nn.Linear(12, 5),
))  # fmt: skip
def other_dimensions(net, x):
    """Convolutions of one and three dimensions, and functions with weights of a module."""
    x = F.relu(net.stem(x))
    n, c, h, w = x.shape
    x = net.line(x.view(n, c, h * w)).view(n, c, h, w)
    x = F.conv2d(x, net.plain.weight, net.plain.bias, padding=2)
    x = net.volume(x.unsqueeze(1)).flatten(1, 2)
    return net.fc(x.relu().mean((2, 3)))
