"""Operations that overwrite a map which someone else may read."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .broadcast import Head, conv
from .entry import member

IMAGE = (3, 10, 10)


@member("in-place", IMAGE, trains=False)
class OldName(nn.Module):
    """The old map is read by another name: it is the new one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.head = conv(3, 8), conv(8, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        old = x
        x += self.conv(x)
        return self.head(F.relu(x) + 2 * old)


@member("in-place", IMAGE, trains=False)
class OldNameOfInput(nn.Module):
    """The same, done to the map that another convolution gave, and then one reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.after, self.head = conv(3, 8), conv(8, 8), conv(8, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        y = old = F.relu(self.stem(x))
        y += self.conv(y)
        y = F.relu(self.after(y))
        y += old
        return self.head(y)


@member("in-place", IMAGE)
class RectifiedTwice(nn.Module):
    """ReLU in place, on a map that is read again: the second reader sees it rectified."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.act = conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.second, self.head = conv(8, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        y = self.second(self.act(x))
        return self.head(self.act(y + x))


@member("in-place", IMAGE)
class RectifiedConvolution(nn.Module):
    """The same without a norm between."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act, self.head = conv(3, 8), nn.ReLU(inplace=True), Head()

    def forward(self, x: Tensor) -> Tensor:
        raw = self.conv(x)
        z = self.act(raw)
        return self.head(raw + z)


@member("in-place", IMAGE)
class Methods(nn.Module):
    """mul_, add_, sub_, div_: a map scaled and shifted where it lies."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.skip, self.bn, self.head = conv(3, 8), conv(3, 8), nn.BatchNorm2d(8), Head()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        seen = y
        y.mul_(0.5).add_(self.skip(x)).sub_(0.1)
        z = self.bn(y)
        z.div_(2)
        return self.head(z + seen)


@member("in-place", IMAGE)
class Slices(nn.Module):
    """Parts of a map are set, and changed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.head = conv(3, 8), nn.BatchNorm2d(8), Head()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn(self.conv(x))
        y[:, :3] = 0
        y[:, 3::2] += 1
        y[..., -1] = x[:, :1, :, 0]
        return self.head(y)


@member("in-place", IMAGE)
class Views(nn.Module):
    """A part of a map is rectified, and the map read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = conv(3, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        flat = y.view(y.size(0), 8, -1)
        flat[:, 6:].neg_()
        y.narrow(1, 5, 2).mul_(3)
        half = y[:, :4]
        half.relu_()
        return self.head(y)


@member("in-place", IMAGE)
class Clamped(nn.Module):
    """clamp_, F.relu_, hardtanh and leaky_relu in place."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.head = conv(3, 8), conv(8, 8), conv(8, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        kept = x
        x.clamp_(-0.5, 0.8)
        y = self.b(x)
        F.leaky_relu_(y, 0.1)
        y = self.c(y)
        F.hardtanh(y, -1, 1, inplace=True)
        return self.head(torch.relu_(y) + kept)


@member("in-place", IMAGE)
class ShortcutSpoilt(nn.Module):
    """A known slip: pre-activation by a ReLU in place, which the shortcut then gets too."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU(inplace=True)
            self.conv1, self.bn1, self.conv2 = conv(8, 8, False), nn.BatchNorm2d(8), conv(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            out = self.relu(x)
            out = self.relu(self.bn1(self.conv1(out)))
            return self.conv2(out) + x

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.blocks = conv(3, 8), nn.Sequential(self.Block(), self.Block())
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)))


@member("in-place", IMAGE)
class ChangesItsInput(nn.Module):
    """Normalizes the images that it was given, where they lie."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = conv(3, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        x.sub_(0.4).div_(0.3)
        x[:, 0] = x[:, 0].clamp(-2, 2)
        return self.head(self.conv(x).relu_())


@member("in-place", IMAGE)
class Accumulator(nn.Module):
    """A sum that starts with zeros and grows."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 8)
        self.paths = nn.ModuleList(conv(8, 8) for _ in range(3))
        self.head = Head()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        total = torch.zeros_like(x)
        for path in self.paths:
            total += path(x)
        total.relu_()
        return self.head(total)


@member("in-place", IMAGE)
class Copied(nn.Module):
    """copy_, masked_fill_ and fill_ on maps that others still read; clone where it matters."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = conv(3, 8), conv(3, 8), Head()

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.a(x), self.b(x)
        before = a.clone()
        alias = a.view_as(a)
        a.copy_(b)
        a.masked_fill_(before > 0, 0.3)
        b[:, 0].fill_(1.0)
        return self.head(alias + before + b)
