"""Layers of every kind: convolutions with all their options, pools, norms, attention, dropout."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from .classics import classifier
from .entry import Sketch, chain, conv, takes, unit

# ---- convolutions with all their options

same = partial(nn.Conv2d, padding="same")

# Paddings by name, and borders that go around, are mirrored, are repeated.
chain("convolutions: paddings", (3, 9, 9), lambda: classifier(
    same(3, 8, 3), nn.ReLU(), same(8, 8, 2), nn.ReLU(), same(8, 8, 3, dilation=2), nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=(1, 2), padding_mode="reflect"), nn.ReLU(),
    same(8, 8, 3, padding_mode="replicate"), nn.ReLU(), nn.Conv2d(8, 8, 3, padding="valid"),
    nn.ZeroPad2d((1, 0, 2, 1)), conv(),
))  # fmt: skip

chain("convolutions: asymmetric", (3, 14, 11), lambda: [
    nn.Conv2d(3, 8, (1, 7), padding=(0, 3)), nn.Conv2d(8, 8, (7, 1), padding=(3, 0)),
    nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, (3, 2), stride=(2, 1), padding=(0, 1)),
    nn.ReLU(), nn.Conv2d(8, 8, (2, 5), stride=(1, 3), padding=(2, 1)), nn.ReLU(), nn.Flatten(),
    nn.Linear(288, 5),
])  # fmt: skip

# Longer than the kernel; a border wider than the kernel; a kernel as large as the map.
chain("convolutions: strides", (3, 16, 16), lambda: [
    nn.Conv2d(3, 8, 1, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 2, stride=3, padding=1), nn.ReLU(),
    nn.Conv2d(8, 8, 1, padding=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 5, 2, 4),
    nn.ReLU(), nn.Conv2d(8, 12, 6), nn.Flatten(), nn.ReLU(), nn.Linear(12, 5),
])  # fmt: skip


class Convolutions(Sketch, kind="convolutions"):
    @takes((3, 12, 12))
    def mobilenet(self, x):
        x = self.unit(3, stride=2)(x)
        for inputs, outputs, stride in ((8, 8, 1), (8, 12, 2), (12, 12, 1)):
            hidden = 2 * inputs
            y = self.Conv2d(inputs, hidden, 1, bias=False)(x)
            y = self.ReLU6(True)(self.BatchNorm2d(hidden)(y))
            y = self.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden)(y)
            y = self.ReLU6(True)(self.BatchNorm2d(hidden)(y))
            y = self.BatchNorm2d(outputs)(self.Conv2d(hidden, outputs, 1, bias=False)(y))
            x = x + y if stride == 1 and inputs == outputs else y
        return self.Linear(12, 5)(x.mean((2, 3)))

    @takes((3, 12, 12), least=2)
    def dilations(self, x):
        """ASPP: dilations and groups side by side, and the mean of the image spread out again."""
        x = self.unit(3)(x)
        branches = [self.point(), *(self.Conv2d(8, 8, 3, padding=d, dilation=d) for d in (1, 2, 4))]
        maps = [F.relu(branch(x)) for branch in (*branches, self.conv(groups=4))]
        image = self.unit(8, 4, 1)(self.AdaptiveAvgPool2d(1)(x))
        pooled = F.interpolate(image, size=x.shape[-2:], mode="nearest")
        return self.conv(44, 3, 1)(torch.cat([*maps, pooled], dim=1))

    def samples_alone(self, x):
        """Samples without a batch go through a convolution, one after the other."""
        x, each = F.relu(self.conv(3)(x)), self.conv()
        return self.fc(torch.stack([each(sample) for sample in x]).relu())

    def other_dimensions(self, x):
        """Convolutions of one and three dimensions, and functions with weights of a module."""
        x = F.relu(self.conv(3)(x))
        n, c, h, w = x.shape
        x = self.Conv1d(8, 8, 3, padding=1)(x.view(n, c, h * w)).view(n, c, h, w)
        plain = self.conv()
        x = F.conv2d(x, plain.weight, plain.bias, padding=2)
        x = self.Conv3d(1, 2, 3)(x.unsqueeze(1)).flatten(1, 2)
        return self.Linear(12, 5)(x.relu().mean((2, 3)))


# ---- pools

chain("pools: modules", (3, 16, 16), lambda: [
    conv(3), nn.MaxPool2d(3, 2, 1), nn.ReLU(), conv(), nn.AvgPool2d(3, 1, 1), nn.ReLU(),
    conv(), nn.AdaptiveMaxPool2d((5, 3)), conv(), nn.AdaptiveAvgPool2d((None, 2)),
    nn.Flatten(), nn.Linear(80, 5),
])  # fmt: skip

# ceil_mode, paddings that count or not, a divisor, a dilation.
chain("pools: odd_sizes", (3, 13, 14), lambda: [
    conv(3), nn.MaxPool2d(3, 2, ceil_mode=True), conv(),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), nn.ReLU(), conv(),
    nn.AvgPool2d((2, 1), 1, (1, 0), divisor_override=3), conv(),
    nn.MaxPool2d(2, stride=1, dilation=2), nn.Flatten(), nn.Linear(48, 5),
])  # fmt: skip


class Pools(Sketch, kind="pools"):
    def with_indices(self, x):
        """A pool that also says where the largest value was; here nobody asks."""
        x, _ = self.MaxPool2d(2, return_indices=True)(self.conv(3)(x))
        return self.fc(self.conv()(x.relu()))

    @takes((3, 12, 12))
    def unpooled(self, x):
        """SegNet: values go back to where they came from."""
        unpool, x1 = self.MaxUnpool2d(2, 2), self.unit(3)(x)
        p1, i1 = self.MaxPool2d(2, 2, return_indices=True)(x1)
        x2 = self.unit()(p1)
        p2, i2 = F.max_pool2d(x2, 2, return_indices=True)
        y = self.unit()(unpool(p2, i2, output_size=x2.size()))
        return self.conv(8, 4)(unpool(y, i1) + x1)

    @takes((3, 9, 9))
    def everything(self, x):
        """Means, maxima and generalized means over a whole map, and bins of several sizes."""
        x = self.conv()(F.relu(self.conv(3)(x)))
        p = 3 + 0.1 * self.parameter()
        gem = x.clamp(min=1e-2).pow(p).mean((-2, -1)).pow(1.0 / p)
        flat = x.view(x.size(0), x.size(1), -1)
        best = flat.topk(3, dim=-1).values.mean(-1)
        parts = [x.mean([2, 3]), torch.amax(x, (2, 3)), flat.std(-1), gem, best]
        bins = [F.adaptive_max_pool2d(x, 2).flatten(1), F.adaptive_avg_pool2d(x, 3).flatten(1)]
        return self.Linear(8 * 5 + 8 * 13, 5)(torch.cat([*parts, *bins], dim=1))

    @takes((3, 12, 12))
    def blurred(self, x):
        """A fixed kernel over a reflected border; max and average pools added."""
        x = self.ReflectionPad2d(1)(F.relu(self.conv(3)(x)))
        x = F.conv2d(x, self.layer(blur).kernel, stride=2, groups=x.shape[1])
        x = self.conv()(x)
        x = F.max_pool2d(x, 2) + F.avg_pool2d(x, kernel_size=2, stride=2, count_include_pad=False)
        return self.fc(x.relu())


def blur():
    """A kernel that is not trained."""
    row = torch.tensor([1.0, 2.0, 1.0]) / 4
    found = nn.Module()
    found.register_buffer("kernel", (row[:, None] * row).repeat(8, 1, 1, 1))
    return found


class Attention(Sketch, kind="attention"):
    def pytorchs_own(self, x):
        """Between the places of a map, samples first; then a transformer's layer, places first."""
        x = F.relu(self.conv(3)(x))[:, :, ::2, ::2]
        n, c, h, w = x.shape
        words = x.flatten(2).transpose(1, 2)
        attention = self.MultiheadAttention(8, 2, batch_first=True)
        words = self.LayerNorm(8)(words + attention(words, words, words, need_weights=False)[0])
        x = self.conv()(words.transpose(1, 2).reshape(n, c, h, w))
        layer = self.TransformerEncoderLayer(8, 2, 16, dropout=0.0)
        return self.Linear(8, 5)(layer(x.flatten(2).permute(2, 0, 1)).mean(0))

    def by_hand(self, x):
        """Queries, keys and values from one layer; einsum."""
        x = F.relu(self.conv(3)(x))
        b, c, h, w = x.shape
        parts = self.conv(8, 24, 1, bias=False)(x).chunk(3, dim=1)
        q, k, v = (t.reshape(b, 2, c // 2, h * w) for t in parts)
        sim = torch.einsum("bhdi,bhdj->bhij", q * 0.5, k)
        out = torch.einsum("bhij,bhdj->bhdi", sim.softmax(dim=-1), v)
        return self.fc(self.point()(out.reshape(b, c, h, w)) + x)

    def cbam(self, x):
        x = F.relu(self.conv(3)(x))
        mlp = self.layer(lambda: nn.Sequential(conv(8, 4, 1), nn.ReLU(), conv(4, 8, 1)))
        gate = mlp(F.adaptive_avg_pool2d(x, 1)) + mlp(F.adaptive_max_pool2d(x, 1))
        y = x * torch.sigmoid(gate)
        pair = torch.cat([y.mean(1, keepdim=True), y.max(dim=1, keepdim=True)[0]], dim=1)
        y = y * torch.sigmoid(self.conv(2, 1, 5, bias=False)(pair))
        return self.fc(F.relu(self.conv()(y) + x))


# ---- norms

chain("norms: instances", (3, 8, 8), lambda: [
    conv(3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(True), conv(),
    nn.InstanceNorm2d(8, track_running_stats=True), nn.ReLU(True), conv(),
    nn.LocalResponseNorm(3), nn.ReLU(), nn.LayerNorm([8, 8, 8]), nn.Flatten(2),
    nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(8, 5),
])  # fmt: skip

# BatchNorm without weights, without statistics, and for vectors. Of two vectors it makes -1 and 1:
# no gradient is left.
chain("norms: batches", (3, 8, 8), lambda: [
    conv(3), nn.BatchNorm2d(8, affine=False), nn.ReLU(), conv(),
    nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), conv(),
    nn.BatchNorm2d(8, momentum=None, eps=0.1), nn.LeakyReLU(0.2), nn.AvgPool2d(4), nn.Flatten(),
    nn.Linear(32, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 5),
], least=3)  # fmt: skip


class Norms(Sketch, kind="norms"):
    def by_functions(self, x):
        """Norms by functions and by hand, with parameters of its own or another's statistics."""
        weight, bias, frozen = self.parameter(8), self.parameter(8), self.norm()
        mean, var = frozen.running_mean, frozen.running_var
        x = F.batch_norm(self.conv(3)(x), mean, var, weight, bias, training=frozen.training)
        x = F.layer_norm(self.conv()(x.relu()), x.shape[1:])
        x = x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * weight[:, None, None]
        x = self.conv()(x)
        x = (x - mean.view(1, -1, 1, 1)) * (var + 1e-5).rsqrt().reshape(1, -1, 1, 1)
        return F.normalize(self.Linear(8, 5)(x.amax((2, 3))), dim=1) * 2


# ---- dropout


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


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


for of_rate_zero, rate in (("", 0.25), ("_of_rate_zero", 0.0)):
    chain(f"dropout: dropout_modules{of_rate_zero}", (3, 8, 8), lambda rate=rate: [
        conv(3), nn.Dropout2d(rate), nn.ReLU(), nn.Dropout(rate, inplace=True), conv(),
        nn.Dropout(rate), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout1d(rate),
        nn.Linear(512, 5),
    ], random=rate > 0)  # fmt: skip
    chain(f"dropout: stochastic_depth{of_rate_zero}", (3, 8, 8), lambda rate=rate: classifier(
        conv(3), Residual(unit(), DropPath(rate)), Residual(unit(), DropPath(rate)),
    ), random=rate > 0)  # fmt: skip
