"""Tricks of Python and of PyTorch."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .entry import member

IMAGE = (3, 8, 8)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, stride), nn.BatchNorm2d(outputs), nn.ReLU())


@member("tricks", IMAGE)
class Hooked(nn.Module):
    """Hooks that change what goes in and what comes out, and one that remembers it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.fc = conv(3, 8), unit(8, 8), conv(8, 8), nn.Linear(8, 5)
        self.a.register_forward_hook(lambda module, inputs, output: output * 2)
        self.b.register_forward_pre_hook(lambda module, inputs: (inputs[0].abs(),))
        self.b[1].register_forward_hook(self._more)

    def _more(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output + 0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.c(self.b(self.a(x))).mean((2, 3)))


@member("tricks", IMAGE)
class ListsAndDicts(nn.Module):
    """Modules that PyTorch knows by another name than the code does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = {"stem": conv(3, 8), "norm": nn.BatchNorm2d(8), "last": conv(8, 8)}
        for name, layer in self.layers.items():
            self.add_module(f"_{name}", layer)
        self.steps = [("stem", None), ("norm", torch.relu), ("last", torch.tanh)]
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        for name, act in self.steps:
            x = self.layers[name](x)
            x = act(x) if act else x
        return self.fc(x.mean((2, 3)))


@member("tricks", IMAGE)
class ByName(nn.Module):
    """getattr, modules that may be missing, functions kept as attributes."""

    def __init__(self) -> None:
        super().__init__()
        for i in range(3):
            self.register_module(f"layer{i}", conv(8 if i else 3, 8))
        self.register_module("downsample", None)
        self.act, self.pool = partial(F.leaky_relu, negative_slope=0.1), lambda x: x.mean((2, 3))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(3):
            x = self.act(getattr(self, f"layer{i}")(x))
        x = x if self.downsample is None else self.downsample(x)
        return self.fc(self.pool(x))


class StandardConv2d(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        std = weight.view(weight.size(0), -1).std(dim=1).view(-1, 1, 1, 1) + 1e-5
        return F.conv2d(x, weight / std, self.bias, self.stride, self.padding)


@member("tricks", IMAGE)
def standardised_weights() -> nn.Module:
    return nn.Sequential(
        StandardConv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), conv(8, 8), nn.ReLU(),
        StandardConv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 5),
    )  # fmt: skip


@member("tricks", IMAGE)
class Activations(nn.Module):
    """One of each, as modules, functions and methods."""

    def __init__(self) -> None:
        super().__init__()
        modules = [
            nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.PReLU(8), nn.Mish(), nn.ELU(), nn.Softsign(),
            nn.CELU(), nn.Threshold(0.1, -0.2), nn.Hardtanh(), nn.Softmax2d(),
        ]  # fmt: skip
        layers = [(conv(8, 8), act) for act in modules]
        self.body = nn.Sequential(conv(3, 8), *(layer for pair in layers for layer in pair))
        self.conv, self.fc = conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.body(x)).sigmoid()
        x = self.conv(x * 9) / 3
        x = torch.where(x > 0.1, x, 0.1 * x.exp())
        return self.fc(F.silu(self.conv(torch.sqrt(torch.abs(x) + 1e-2))).tanh().mean((2, 3)))


@member("tricks", IMAGE)
class ScaledResidual(nn.Module):
    """Layer scale, ReZero, highway gates, and a maximum of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b, self.gate = conv(3, 8), conv(8, 8), conv(8, 8), conv(8, 8)
        self.c, self.d, self.fc = conv(8, 8), conv(8, 8), nn.Linear(8, 5)
        self.gamma = nn.Parameter(torch.randn(8, 1, 1))
        self.alpha = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.gamma * F.relu(self.a(x))
        x = torch.relu(x + self.alpha * self.b(x) + 0.1 * x)
        t = torch.sigmoid(self.gate(x))
        x = t * F.relu(self.c(x)) + (1 - t) * x
        return self.fc(torch.maximum(self.c(x), self.d(x)).mean((2, 3)))


class Binarize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.where(x > 0, torch.ones_like(x), -torch.ones_like(x))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


@member("tricks", IMAGE)
class StraightThrough(nn.Module):
    """Maps of -1 and 1, with a gradient that does not exist."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.fc = conv(3, 8), conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.b(Binarize.apply(self.a(x))).mean((2, 3)))


@member("tricks", IMAGE)
class Checkpointed(nn.Module):
    """Parts are computed again in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.fc = (
            conv(3, 8),
            nn.Sequential(conv(8, 8), nn.ReLU()),
            nn.Linear(8, 5),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = checkpoint(self.a, x, use_reentrant=False) + x
        return self.fc(x.mean((2, 3)))


@member("tricks", (3, 12, 12))
class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 10, 4, 4)
        self.tokens = nn.Sequential(nn.Linear(9, 12), nn.GELU(), nn.Linear(12, 9))
        self.channels = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 10))
        self.norm1, self.norm2, self.fc = nn.LayerNorm(10), nn.LayerNorm(10), nn.Linear(10, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).mT
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.fc(x.mean(dim=1))


@member("tricks", IMAGE)
class Experts(nn.Module):
    """Each sample has a kernel of its own: the batch becomes groups of one convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.route, self.last = conv(3, 8), nn.Linear(8, 3), conv(8, 8)
        self.kernels = nn.Parameter(torch.randn(3, 8, 8, 3, 3) * 0.2)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        n, c, h, w = x.shape
        weights = torch.einsum(
            "ne,eoihw->noihw", self.route(x.mean((2, 3))).softmax(1), self.kernels
        )
        y = F.conv2d(x.reshape(1, n * c, h, w), weights.flatten(0, 1), padding=1, groups=n)
        return self.fc(self.last(y.view(n, c, h, w)).relu().mean((2, 3)))


@member("tricks", IMAGE)
class RowsAsWords(nn.Module):
    """An LSTM reads a map's rows; a Fourier transform looks at all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = conv(3, 4), conv(4, 8)
        self.lstm, self.fc = nn.LSTM(32, 6, batch_first=True), nn.Linear(14, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=x.shape[-2:])
        _, (h, _) = self.lstm(x.permute(0, 2, 1, 3).flatten(2))
        return self.fc(torch.cat([h[-1], self.last(x).amax((2, 3))], 1))


@member("tricks", IMAGE)
class Frozen(nn.Module):
    """A backbone that is not trained, behind no_grad; channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = unit(3, 8).requires_grad_(False)
        self.register_buffer("mean", torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1))
        self.neck, self.twin = conv(8, 8), conv(8, 8)
        self.twin.load_state_dict(copy.deepcopy(self.neck.state_dict()))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.backbone((x - self.mean).contiguous(memory_format=torch.channels_last))
        x = F.relu(self.neck(x.detach()))
        return self.fc((x - self.twin(x).detach()).mean((2, 3)))


@member("tricks", (20,))
def only_vectors() -> nn.Module:
    return nn.Sequential(
        nn.Linear(20, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32),
        nn.Linear(32, 5), nn.Softmax(dim=-1),
    )  # fmt: skip


@member("tricks", (4, 6))
class Sentences(nn.Module):
    """Linear layers on tensors of three and of four dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 12), nn.Linear(4, 8), nn.Linear(12, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.a(x))
        x = self.b(x.transpose(-1, -2)).transpose(-1, -2)
        return self.c(x.unsqueeze(1).expand(-1, 2, -1, -1)).mean((1, 2))
