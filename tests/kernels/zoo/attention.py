"""Attention and norms of every kind."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import member

IMAGE = (3, 8, 8)


def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1)


def unit(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, stride), nn.BatchNorm2d(outputs), nn.ReLU())


@member("attention", IMAGE)
class Multihead(nn.Module):
    """PyTorch's own attention between the places of a map."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = unit(3, 8, 2), conv(8, 8)
        self.attention, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n, c, h, w = x.shape
        words = x.flatten(2).transpose(1, 2)
        words = self.norm(words + self.attention(words, words, words, need_weights=False)[0])
        return self.fc(self.last(words.transpose(1, 2).reshape(n, c, h, w)).mean((2, 3)))


@member("attention", IMAGE)
class ByHand(nn.Module):
    """Queries, keys and values from one linear layer; einsum."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.scale = heads, (8 // heads) ** -0.5
        self.stem = unit(3, 8)
        self.to_qkv, self.to_out = nn.Conv2d(8, 24, 1, bias=False), nn.Conv2d(8, 8, 1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        b, c, h, w = x.shape
        q, k, v = (
            t.reshape(b, self.heads, c // self.heads, h * w) for t in self.to_qkv(x).chunk(3, dim=1)
        )
        sim = torch.einsum("bhdi,bhdj->bhij", q * self.scale, k)
        out = torch.einsum("bhij,bhdj->bhdi", sim.softmax(dim=-1), v)
        return self.fc((self.to_out(out.reshape(b, c, h, w)) + x).mean((2, 3)))


class CBAM(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv2d(channels, 4, 1), nn.ReLU(), nn.Conv2d(4, channels, 1))
        self.conv = nn.Conv2d(2, 1, 5, padding=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.sigmoid(
            self.mlp(F.adaptive_avg_pool2d(x, 1)) + self.mlp(F.adaptive_max_pool2d(x, 1))
        )
        pair = torch.cat([x.mean(1, keepdim=True), x.max(dim=1, keepdim=True)[0]], dim=1)
        return x * torch.sigmoid(self.conv(pair))


@member("attention", IMAGE)
class Cbam(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.attend, self.b, self.fc = unit(3, 8), CBAM(8), conv(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return self.fc(F.relu(self.b(self.attend(x)) + x).mean((2, 3)))


@member("attention", IMAGE)
class NonLocal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.pool = unit(3, 8), nn.MaxPool2d(2)
        self.theta, self.phi, self.g = (nn.Conv2d(8, 4, 1) for _ in range(3))
        self.out = nn.Sequential(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8))
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        n = x.size(0)
        g = self.pool(self.g(x)).view(n, 4, -1).permute(0, 2, 1)
        theta = self.theta(x).view(n, 4, -1).permute(0, 2, 1)
        phi = self.pool(self.phi(x)).view(n, 4, -1)
        y = torch.matmul(F.softmax(8 * torch.matmul(theta, phi), dim=-1), g)
        y = y.permute(0, 2, 1).contiguous().view(n, 4, *x.size()[2:])
        return self.fc((self.out(y) + x).mean((2, 3)))


class Block(nn.Module):
    """timm's block of a vision transformer."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 24), nn.GELU(), nn.Dropout(0.0), nn.Linear(24, dim))
        self.gamma = nn.Parameter(torch.full((dim,), 0.3))

    def attention(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0)
        return self.proj(x.transpose(1, 2).reshape(b, n, c))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gamma * self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


@member("attention", (3, 12, 12))
class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 12, kernel_size=4, stride=4)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 12))
        self.pos_embed = nn.Parameter(torch.randn(1, 10, 12) * 0.1)
        self.blocks = nn.Sequential(Block(12, 2), Block(12, 3))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = self.norm(self.blocks(x + self.pos_embed))
        return self.head(x[:, 0])


@member("attention", IMAGE)
class EncoderLayer(nn.Module):
    """PyTorch's transformer layer, after convolutions, sequence first."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(unit(3, 8, 2), conv(8, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.layer(self.stem(x).flatten(2).permute(2, 0, 1)).mean(0))


@member("attention", (3, 9, 7))
class Coordinates(nn.Module):
    """Coordinate attention: means of rows and of columns, joined, and parted again."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.joint, self.bn = unit(3, 8), nn.Conv2d(8, 6, 1), nn.BatchNorm2d(6)
        self.rows, self.columns, self.fc = nn.Conv2d(6, 8, 1), nn.Conv2d(6, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        h, w = x.shape[2:]
        rows, columns = x.mean(3, keepdim=True), x.mean(2, keepdim=True).permute(0, 1, 3, 2)
        y = F.hardswish(self.bn(self.joint(torch.cat([rows, columns], dim=2))))
        rows, columns = torch.split(y, [h, w], dim=2)
        gate = self.rows(rows).sigmoid() * self.columns(columns.permute(0, 1, 3, 2)).sigmoid()
        return self.fc((x * gate).mean((2, 3)))


# ---- norms


@member("norms", IMAGE)
class Groups(nn.Module):
    """A residual network with GroupNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = conv(3, 8), nn.GroupNorm(4, 8)
        self.conv1, self.gn1, self.conv2 = conv(8, 8), nn.GroupNorm(2, 8), conv(8, 8)
        self.gn2, self.fc = nn.GroupNorm(1, 8, affine=False), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = self.gn2(self.conv2(F.relu(self.gn1(self.conv1(x)))))
        return self.fc(F.relu(y + x).mean((2, 3)))


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=5, padding=2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1, self.act, self.pwconv2 = nn.Linear(dim, 24), nn.GELU(), nn.Linear(24, dim)
        self.gamma = nn.Parameter(torch.full((dim,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.dwconv(x).permute(0, 2, 3, 1)
        x = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        return shortcut + x.permute(0, 3, 1, 2)


@member("norms", (3, 12, 12))
class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, kernel_size=2, stride=2)
        self.blocks = nn.Sequential(ConvNeXtBlock(8), nn.Conv2d(8, 12, 2, 2), ConvNeXtBlock(12))
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.stem(x)).mean([-2, -1])))


@member("norms", IMAGE)
def instances() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), nn.InstanceNorm2d(8, affine=True), nn.ReLU(True), conv(8, 8),
        nn.InstanceNorm2d(8, track_running_stats=True), nn.ReLU(True), conv(8, 8),
        nn.InstanceNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5),
    )  # fmt: skip


class RMSNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-5
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)
        return x * self.weight[:, None, None]


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


@member("norms", IMAGE)
def by_hand() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), RMSNorm(8), nn.ReLU(), conv(8, 8), LayerNorm2d(8), nn.ReLU(), conv(8, 8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


@member("norms", IMAGE, least=3)  # of two vectors BatchNorm makes -1 and 1: no gradient is left
def batches() -> nn.Module:
    """BatchNorm without weights, without statistics, and for vectors."""
    return nn.Sequential(
        conv(3, 8), nn.BatchNorm2d(8, affine=False), nn.ReLU(), conv(8, 8),
        nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), conv(8, 8),
        nn.BatchNorm2d(8, momentum=None, eps=0.1), nn.LeakyReLU(0.2), nn.AvgPool2d(4), nn.Flatten(),
        nn.Linear(32, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 5),
    )  # fmt: skip


class FrozenBatchNorm(nn.Module):
    """Statistics and weights as buffers, as detectors keep them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.eps = 1e-5
        for name in ("weight", "bias", "running_mean"):
            self.register_buffer(name, torch.randn(channels))
        self.register_buffer("running_var", torch.rand(channels) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight.reshape(1, -1, 1, 1) * (self.running_var + self.eps).rsqrt().reshape(
            1, -1, 1, 1
        )
        return x * scale + (
            self.bias.reshape(1, -1, 1, 1) - self.running_mean.reshape(1, -1, 1, 1) * scale
        )


@member("norms", IMAGE)
def frozen() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), FrozenBatchNorm(8), nn.ReLU(inplace=True), conv(8, 8, 2), FrozenBatchNorm(8),
        nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(128, 5),
    )  # fmt: skip


class FilterResponse(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta, self.tau = (
            nn.Parameter(torch.randn(1, channels, 1, 1)) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        nu2 = torch.mean(x**2, dim=[2, 3], keepdim=True)
        x = x * torch.rsqrt(nu2 + 1e-6)
        return torch.max(self.gamma * x + self.beta, self.tau)


@member("norms", IMAGE)
def responses() -> nn.Module:
    return nn.Sequential(
        conv(3, 8), FilterResponse(8), conv(8, 8), nn.LocalResponseNorm(3), nn.ReLU(), conv(8, 8),
        nn.LayerNorm([8, 8, 8]), nn.Flatten(2), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
        nn.Linear(8, 5),
    )  # fmt: skip


@member("norms", IMAGE)
class ByFunctions(nn.Module):
    """F.batch_norm, F.layer_norm and F.normalize with parameters of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.second, self.fc = conv(3, 8), conv(8, 8), nn.Linear(8, 5)
        self.weight, self.bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))
        self.register_buffer("mean", torch.randn(8))
        self.register_buffer("var", torch.rand(8) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = F.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=self.training)
        x = F.layer_norm(self.second(x.relu()), x.shape[1:])
        return F.normalize(self.fc(x.amax((2, 3))), dim=1) * math.sqrt(5)
