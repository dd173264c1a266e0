"""What changes height and width: pools and U-Nets."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, stride), nn.BatchNorm2d(outputs), nn.ReLU())


# ---- pools


@member("pools", (3, 16, 16))
def modules() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.MaxPool2d(3, 2, 1), nn.ReLU(), conv(8, 8), nn.AvgPool2d(3, 1, 1), nn.ReLU(),
        conv(8, 8), nn.AdaptiveMaxPool2d((5, 3)), conv(8, 8), nn.AdaptiveAvgPool2d((None, 2)),
        nn.Flatten(), nn.Linear(80, 5),
    )  # fmt: skip


@member("pools", (3, 13, 14))
def odd_sizes() -> nn.Module:
    """ceil_mode, paddings that count or not, a divisor, a dilation."""
    return nn.Sequential(
        conv(3, 8), nn.MaxPool2d(3, 2, ceil_mode=True), conv(8, 8),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.ReLU(), conv(8, 8),
        nn.AvgPool2d((2, 1), 1, (1, 0), divisor_override=3), conv(8, 8),
        nn.MaxPool2d(2, stride=1, dilation=2), nn.Flatten(), nn.Linear(48, 5),
    )  # fmt: skip


@member("pools", (3, 12, 12))
def norms_as_pools() -> nn.Module:
    return nn.Sequential(
        unit(3, 8), nn.LPPool2d(2, 3, stride=2), conv(8, 8), nn.Softplus(),
        nn.LPPool2d(3, 2, ceil_mode=True), nn.Flatten(), nn.Linear(72, 5),
    )  # fmt: skip


@member("pools", (3, 8, 8))
class WithIndices(nn.Module):
    """A pool that also says where the largest value was; here nobody asks."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = conv(3, 8), nn.MaxPool2d(2, return_indices=True)
        self.second, self.fc = conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.pool(self.conv(x))
        return self.fc(self.second(x.relu()).mean((2, 3)))


@member("pools", (3, 12, 12))
class Unpooled(nn.Module):
    """SegNet: values go back to where they came from."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.up2, self.up1 = unit(3, 8), unit(8, 8), unit(8, 8), conv(8, 4)
        self.pool, self.unpool = nn.MaxPool2d(2, 2, return_indices=True), nn.MaxUnpool2d(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.down1(x)
        p1, i1 = self.pool(x1)
        x2 = self.down2(p1)
        p2, i2 = F.max_pool2d(x2, 2, return_indices=True)
        y = self.up2(self.unpool(p2, i2, output_size=x2.size()))
        return self.up1(self.unpool(y, i1) + x1)


@member("pools", (3, 9, 9))
class Everything(nn.Module):
    """Means, maxima and generalized means over a whole map, joined."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(unit(3, 8), conv(8, 8))
        self.p, self.fc = nn.Parameter(torch.tensor(3.0)), nn.Linear(40, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        gem = x.clamp(min=1e-2).pow(self.p).mean((-2, -1)).pow(1.0 / self.p)
        flat = x.view(x.size(0), x.size(1), -1)
        best = flat.topk(3, dim=-1).values.mean(-1)
        parts = [x.mean([2, 3]), torch.amax(x, (2, 3)), flat.std(-1), gem, best]
        return self.fc(torch.cat(parts, dim=1))


@member("pools", (3, 11, 11))
class Pyramid(nn.Module):
    """Spatial pyramid pooling: bins of several sizes; pools as functions."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Sequential(unit(3, 8), conv(8, 6)), nn.Linear(6 * 14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(self.body(x), kernel_size=3, stride=2, padding=1, count_include_pad=False)
        levels = [F.adaptive_max_pool2d(x, size).flatten(1) for size in (1, 2)]
        return self.fc(torch.cat([*levels, F.adaptive_avg_pool2d(x, 3).flatten(1)], 1))


@member("pools", (3, 12, 12))
class Blurred(nn.Module):
    """A fixed kernel over a reflected border; max and average pools added."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.second, self.fc = conv(3, 8), conv(8, 8), nn.Linear(8, 5)
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("kernel", (row[:, None] * row).repeat(8, 1, 1, 1))
        self.pad = nn.ReflectionPad2d(1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        x = F.conv2d(self.pad(x), self.kernel, stride=2, groups=x.shape[1])
        x = self.second(x)
        return self.fc((F.max_pool2d(x, 2) + F.avg_pool2d(x, 2)).relu().mean((2, 3)))


# ---- U-Nets


class DoubleConv(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.double_conv(x)


@member("u-net", (3, 13, 15))
class TransposedUp(nn.Module):
    """The one on everyone's disk: transposed convolutions, padded to fit."""

    def __init__(self) -> None:
        super().__init__()
        self.inc, self.down1, self.down2 = DoubleConv(3, 6), DoubleConv(6, 8), DoubleConv(8, 12)
        self.up1, self.conv1 = nn.ConvTranspose2d(12, 8, 2, stride=2), DoubleConv(16, 8)
        self.up2, self.conv2 = nn.ConvTranspose2d(8, 6, 2, stride=2), DoubleConv(12, 6)
        self.outc = nn.Conv2d(6, 2, kernel_size=1)

    def up(self, x1: Tensor, x2: Tensor) -> Tensor:
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return torch.cat([x2, x1], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x = self.conv1(self.up(self.up1(x3), x2))
        x = self.conv2(self.up(self.up2(x), x1))
        return self.outc(x)


@member("u-net", (3, 12, 12))
class Interpolated(nn.Module):
    """Bilinear, sums instead of joins, sigmoid at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList([unit(3, 8), unit(8, 8), unit(8, 8)])
        self.decoder = nn.ModuleList([unit(8, 8), unit(8, 8)])
        self.pool, self.last = nn.MaxPool2d(2), nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for i, stage in enumerate(self.encoder):
            x = stage(x if i == 0 else self.pool(x))
            skips.append(x)
        skips.pop()
        for stage in self.decoder:
            skip = skips.pop()
            up = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = stage(up + skip)
        return torch.sigmoid(self.last(x)).squeeze(1)


@member("u-net", (1, 16, 16))
class Cropped(nn.Module):
    """As in the paper: no padding, and what comes over is cut."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU())
        self.bottom = nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Upsample(scale_factor=2))
        self.last = nn.Conv2d(16, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        across = self.down(x)
        x = self.bottom(F.max_pool2d(across, 2))
        d = (across.shape[2] - x.shape[2]) // 2
        across = across[:, :, d : d + x.shape[2], d : d + x.shape[3]]
        return self.last(torch.cat([across, x], 1))


@member("u-net", (3, 9, 9))
def autoencoder() -> nn.Module:
    return nn.Sequential(
        conv(3, 8, 2), nn.LeakyReLU(0.2, inplace=True), conv(8, 12, 2), nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(108, 6), nn.ReLU(), nn.Linear(6, 108), nn.Unflatten(1, (12, 3, 3)),
        nn.ConvTranspose2d(12, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 3, 2, padding=1, output_padding=0), nn.Tanh(),
    )  # fmt: skip
