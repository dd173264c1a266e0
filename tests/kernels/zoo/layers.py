"""Layers of every kind beside convolutions: pools, norms, attention, dropout, the way up again."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .entry import conv, layers, member, one_by_one, parameter, several, unit

IMAGE = (3, 8, 8)


# ---- pools


@member("pools", (3, 16, 16))
def modules():
    return nn.Sequential(
        conv(3), nn.MaxPool2d(3, 2, 1), nn.ReLU(), conv(), nn.AvgPool2d(3, 1, 1), nn.ReLU(),
        conv(), nn.AdaptiveMaxPool2d((5, 3)), conv(), nn.AdaptiveAvgPool2d((None, 2)),
        nn.Flatten(), nn.Linear(80, 5),
    )  # fmt: skip


@member("pools", (3, 13, 14))
def odd_sizes():
    """ceil_mode, paddings that count or not, a divisor, a dilation."""
    return nn.Sequential(
        conv(3), nn.MaxPool2d(3, 2, ceil_mode=True), conv(),
        nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.ReLU(), conv(),
        nn.AvgPool2d((2, 1), 1, (1, 0), divisor_override=3), conv(),
        nn.MaxPool2d(2, stride=1, dilation=2), nn.Flatten(), nn.Linear(48, 5),
    )  # fmt: skip


@member("pools", IMAGE, of=layers("conv second", pool=lambda: nn.MaxPool2d(2, return_indices=True)))
def with_indices(net, x):
    """A pool that also says where the largest value was; here nobody asks."""
    x, _ = net.pool(net.conv(x))
    return net.fc(net.second(x.relu()).mean((2, 3)))


@member("pools", (3, 12, 12), of={
    "down1": partial(unit, 3), "down2": unit, "up2": unit, "up1": partial(conv, 8, 4),
    "pool": lambda: nn.MaxPool2d(2, 2, return_indices=True), "unpool": lambda: nn.MaxUnpool2d(2, 2),
})  # fmt: skip
def unpooled(net, x):
    """SegNet: values go back to where they came from."""
    x1 = net.down1(x)
    p1, i1 = net.pool(x1)
    x2 = net.down2(p1)
    p2, i2 = F.max_pool2d(x2, 2, return_indices=True)
    y = net.up2(net.unpool(p2, i2, output_size=x2.size()))
    return net.up1(net.unpool(y, i1) + x1)


@member("pools", (3, 9, 9), of=layers(
    "first body", p=parameter(), fc=lambda: nn.Linear(8 * 5 + 8 * 13, 5)
))  # fmt: skip
def everything(net, x):
    """Means, maxima and generalized means over a whole map, and bins of several sizes, joined."""
    x = net.body(F.relu(net.first(x)))
    p = 3 + 0.1 * net.p
    gem = x.clamp(min=1e-2).pow(p).mean((-2, -1)).pow(1.0 / p)
    flat = x.view(x.size(0), x.size(1), -1)
    best = flat.topk(3, dim=-1).values.mean(-1)
    parts = [x.mean([2, 3]), torch.amax(x, (2, 3)), flat.std(-1), gem, best]
    bins = [F.adaptive_max_pool2d(x, 2).flatten(1), F.adaptive_avg_pool2d(x, 3).flatten(1)]
    return net.fc(torch.cat([*parts, *bins], dim=1))


def blur():
    """A kernel that is not trained."""
    row = torch.tensor([1.0, 2.0, 1.0]) / 4
    found = nn.Module()
    found.register_buffer("kernel", (row[:, None] * row).repeat(8, 1, 1, 1))
    return found


@member(
    "pools", (3, 12, 12), of=layers("conv second", blur=blur, pad=lambda: nn.ReflectionPad2d(1))
)
def blurred(net, x):
    """A fixed kernel over a reflected border; max and average pools added."""
    x = F.relu(net.conv(x))
    x = net.second(F.conv2d(net.pad(x), net.blur.kernel, stride=2, groups=x.shape[1]))
    x = F.max_pool2d(x, 2) + F.avg_pool2d(x, kernel_size=2, stride=2, count_include_pad=False)
    return net.fc(x.relu().mean((2, 3)))


# ---- down and up again


@member("u-net", (3, 13, 15), of={
    "inc": partial(unit, 3, 6), "down1": partial(unit, 6, 8), "down2": partial(unit, 8, 12),
    "up1": lambda: nn.ConvTranspose2d(12, 8, 2, stride=2), "conv1": partial(unit, 16),
    "up2": lambda: nn.ConvTranspose2d(8, 6, 2, stride=2), "conv2": partial(unit, 12, 6),
    "outc": partial(conv, 6, 2, 1),
})  # fmt: skip
def transposed_up(net, x):
    """The one on everyone's disk: transposed convolutions, padded to fit."""

    def up(x1, x2):
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return torch.cat([x2, x1], dim=1)

    x1 = net.inc(x)
    x2 = net.down1(F.max_pool2d(x1, 2))
    x3 = net.down2(F.max_pool2d(x2, 2))
    x = net.conv1(up(net.up1(x3), x2))
    return net.outc(net.conv2(up(net.up2(x), x1)))


@member("u-net", (3, 12, 12), of={
    "encoder": several(partial(unit, 3), unit, unit), "decoder": several(unit, unit),
    "last": partial(conv, 8, 1, 1),
})  # fmt: skip
def interpolated(net, x):
    """Bilinear, sums instead of joins, sigmoid at the end."""
    skips: list[Tensor] = []
    for i, stage in enumerate(net.encoder):
        x = stage(x if i == 0 else F.max_pool2d(x, 2))
        skips.append(x)
    skips.pop()
    for stage in net.decoder:
        skip = skips.pop()
        up = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        x = stage(up + skip)
    return torch.sigmoid(net.last(x)).squeeze(1)


@member("u-net", (3, 9, 9))
def autoencoder():
    return nn.Sequential(
        conv(3, stride=2), nn.LeakyReLU(0.2, inplace=True), conv(8, 12, stride=2),
        nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(108, 6), nn.ReLU(), nn.Linear(6, 108),
        nn.Unflatten(1, (12, 3, 3)), nn.ConvTranspose2d(12, 8, 3, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 3, 2, padding=1, output_padding=0), nn.Tanh(),
    )  # fmt: skip


# ---- attention


@member("attention", IMAGE, of=layers(
    "stem last", attention=lambda: nn.MultiheadAttention(8, 2, batch_first=True),
    norm=lambda: nn.LayerNorm(8), layer=lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0),
))  # fmt: skip
def pytorchs_own(net, x):
    """Between the places of a map, samples first; then a transformer's layer, places first."""
    x = F.relu(net.stem(x))[:, :, ::2, ::2]
    n, c, h, w = x.shape
    words = x.flatten(2).transpose(1, 2)
    words = net.norm(words + net.attention(words, words, words, need_weights=False)[0])
    x = net.last(words.transpose(1, 2).reshape(n, c, h, w))
    return net.fc(net.layer(x.flatten(2).permute(2, 0, 1)).mean(0))


@member("attention", IMAGE, of=layers(
    "stem", to_qkv=partial(conv, 8, 24, 1, bias=False), to_out=one_by_one
))  # fmt: skip
def by_hand(net, x):
    """Queries, keys and values from one layer; einsum."""
    x = F.relu(net.stem(x))
    b, c, h, w = x.shape
    q, k, v = (t.reshape(b, 2, c // 2, h * w) for t in net.to_qkv(x).chunk(3, dim=1))
    sim = torch.einsum("bhdi,bhdj->bhij", q * 0.5, k)
    out = torch.einsum("bhij,bhdj->bhdi", sim.softmax(dim=-1), v)
    return net.fc((net.to_out(out.reshape(b, c, h, w)) + x).mean((2, 3)))


@member("attention", IMAGE, of=layers(
    "a b", mlp=lambda: nn.Sequential(conv(8, 4, 1), nn.ReLU(), conv(4, 8, 1)),
    place=partial(conv, 2, 1, 5, bias=False),
))  # fmt: skip
def cbam(net, x):
    x = F.relu(net.a(x))
    gate = net.mlp(F.adaptive_avg_pool2d(x, 1)) + net.mlp(F.adaptive_max_pool2d(x, 1))
    y = x * torch.sigmoid(gate)
    pair = torch.cat([y.mean(1, keepdim=True), y.max(dim=1, keepdim=True)[0]], dim=1)
    y = y * torch.sigmoid(net.place(pair))
    return net.fc(F.relu(net.b(y) + x).mean((2, 3)))


# ---- norms


@member("norms", IMAGE)
def instances():
    return nn.Sequential(
        conv(3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(True), conv(),
        nn.InstanceNorm2d(8, track_running_stats=True), nn.ReLU(True), conv(),
        nn.LocalResponseNorm(3), nn.ReLU(), nn.LayerNorm([8, 8, 8]), nn.Flatten(2),
        nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


@member("norms", IMAGE, least=3)  # of two vectors BatchNorm makes -1 and 1: no gradient is left
def batches():
    """BatchNorm without weights, without statistics, and for vectors."""
    return nn.Sequential(
        conv(3), nn.BatchNorm2d(8, affine=False), nn.ReLU(), conv(),
        nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), conv(),
        nn.BatchNorm2d(8, momentum=None, eps=0.1), nn.LeakyReLU(0.2), nn.AvgPool2d(4), nn.Flatten(),
        nn.Linear(32, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 5),
    )  # fmt: skip


@member("norms", IMAGE, of=layers(
    "conv second third", weight=parameter(8), bias=parameter(8), frozen=partial(nn.BatchNorm2d, 8)
))  # fmt: skip
def by_functions(net, x):
    """Norms by functions and by hand, with parameters of its own or another's statistics."""
    x = net.conv(x)
    mean, var = net.frozen.running_mean, net.frozen.running_var
    x = F.batch_norm(x, mean, var, net.weight, net.bias, training=net.training)
    x = F.layer_norm(net.second(x.relu()), x.shape[1:])
    x = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * net.weight[:, None, None]
    x = net.third(x)
    x = (x - mean.view(1, -1, 1, 1)) * (var + 1e-5).rsqrt().reshape(1, -1, 1, 1)
    return F.normalize(net.fc(x.amax((2, 3))), dim=1) * 2


# ---- dropout


def dropouts(rate):
    return nn.Sequential(
        conv(3), nn.Dropout2d(rate), nn.ReLU(), nn.Dropout(rate, inplace=True), conv(),
        nn.Dropout(rate), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout1d(rate),
        nn.Linear(512, 5),
    )  # fmt: skip


class DropPath(nn.Module):
    """timm's: whole samples of a residual are left out; and dropout by functions."""

    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        x = F.dropout(F.relu(x), p=self.drop_prob, training=self.training)
        x = F.dropout(F.dropout2d(x, self.drop_prob, self.training), 0.0)
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        return x * mask.div_(keep)


def stochastic(rate):
    class Residual(nn.Sequential):
        def forward(self, x):
            return x + super().forward(x)

    blocks = (Residual(unit(), DropPath(rate)) for _ in range(2))
    return nn.Sequential(conv(3), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))


@member("dropout", IMAGE, random=True)
def dropout_modules():
    return dropouts(0.2)


@member("dropout", IMAGE)
def dropout_modules_of_rate_zero():
    return dropouts(0.0)


@member("dropout", IMAGE, random=True)
def stochastic_depth():
    return stochastic(0.3)


@member("dropout", IMAGE)
def stochastic_depth_of_rate_zero():
    return stochastic(0.0)
