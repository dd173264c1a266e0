"""What networks do with maps: add what is no map, overwrite them, cut them, look at their sizes."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from .entry import conv, integers, layers, member, norm, one_by_one, parameter, several, unit

IMAGE = (3, 10, 10)


class Head(nn.Module):
    """Classes from a map, after one more convolution."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = conv(), nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).mean(dim=[2, 3]))


headed = partial(layers, fc=Head)


# ---- what is added to maps is not always a map of the same shape


@member("broadcast", IMAGE, of=headed(
    "conv second", norm=norm, bias=parameter(1, 8, 1, 1), left=parameter(8, 1, 1)
))  # fmt: skip
def channel_bias(net, x):
    """A parameter (1, C, 1, 1) where others have a bias; one (C, 1, 1) from the left."""
    x = F.relu(net.norm(net.conv(x)) + net.bias) * net.bias
    return net.fc(torch.relu(net.left + net.second(x)))


@member("broadcast", IMAGE, of=headed(
    "conv second third", bn=norm, position=parameter(1, 8, 10, 10), table=parameter(8, 10, 10)
))  # fmt: skip
def position_map(net, x):
    """A parameter (1, C, H, W) added to a convolution's output: once a segmentation fault."""
    x = F.relu(net.bn(net.conv(x)) + net.position)
    x = torch.relu(net.second(x) + net.table)
    return net.fc(net.third(x) + net.position)


@member("broadcast", IMAGE, of=headed("conv", transform=one_by_one))
def context(net, x):
    """A vector of each sample, (N, C, 1, 1), added to its map."""
    x = net.conv(x)
    context = net.transform(x.mean((2, 3), keepdim=True))
    return net.fc(torch.relu(x + context) + net.conv.bias.view(1, -1, 1, 1))


@member("broadcast", IMAGE, of=headed(
    "conv", one=partial(conv, 3, 1), other=partial(conv, 8, 1), thin=partial(conv, 8, 1, 1)
))  # fmt: skip
def one_channel(net, x):
    """Maps of one channel added to each other, and to one of many, from either side; a pool."""
    many = net.conv(x)
    many = F.relu(net.one(x) + net.thin(many) + many)
    many = many + F.max_pool2d(net.one(x), 3, 1, 1)
    return net.fc(many + net.other(many))


@member("broadcast", IMAGE, of=headed(
    "stem conv1 conv2", a=parameter(1), b=parameter(1), scale=parameter()
))  # fmt: skip
def scalars(net, x):
    """Fixup: parameters of one number around convolutions without norms."""
    identity = x = net.stem(x)
    out = F.relu(net.conv1(x + net.a) + net.b)
    out = net.conv2(out + net.a) * net.scale + net.b
    return net.fc(F.relu(out + identity))


@member("broadcast", IMAGE, of=headed("one two three four"))
def numbers(net, x):
    """Python's numbers: constants and sizes; and a map that is added to itself."""
    x = net.one(x) + 0.5
    x = torch.relu(net.two(x) + x.shape[1])
    x = x.shape[-1] + net.three(x)
    x = torch.add(net.four(x), 3, alpha=2)
    y = net.two(x)
    return net.fc(y + y) + x.size(1)


@member("broadcast", (3, 9, 7), of=headed(
    "conv", rows=parameter(1, 8, 9, 1), columns=parameter(1, 8, 1, 7)
))  # fmt: skip
def rows_and_columns(net, x):
    """An embedding for rows, (1, C, H, 1), one for columns, (1, C, 1, W); numbers of places."""
    places = torch.arange(x.shape[3], dtype=x.dtype, device=x.device) / x.shape[3]
    return net.fc(net.conv(x) + places + (net.rows + net.columns))


@member("broadcast", IMAGE, of=headed(
    "conv", template=parameter(1, 4, 10, 10), embed=partial(conv, 4)
))  # fmt: skip
def learnt_template(net, x):
    """A batch of one, made by a convolution from a parameter, added to the batch."""
    template = net.embed(net.template)
    x = F.relu(net.conv(x) + template)
    return net.fc(torch.add(template, x))


@member("broadcast", IMAGE, of=headed("a c", b=partial(conv, 3)))
def weighted_addition(net, x):
    """torch.add with alpha, subtraction, and the sum of a list."""
    y = torch.add(net.a(x), net.b(x), alpha=-0.5).relu()
    y = y.add(net.c(y), alpha=2.0)
    return net.fc(sum([y, net.b(x), net.a(x)]) - net.c(y))


@member("broadcast", IMAGE, integers(50), of=headed(
    "conv1 conv2", table=lambda: nn.Embedding(50, 6), norm=lambda: nn.GroupNorm(2, 8),
    project=lambda: nn.Sequential(nn.SiLU(), nn.Linear(6, 8)),
))  # fmt: skip
def time_embedding(net, x, t):
    """As in diffusion: a vector from a whole number, added to each place."""
    h = net.conv1(x) + net.project(net.table(t))[:, :, None, None]
    return net.fc(net.conv2(F.silu(net.norm(h))))


# ---- operations that overwrite a map which someone else may read


@member("in-place", IMAGE, trains=False, of=headed("stem conv"))
def old_name(net, x):
    """The old map is read by another name: it is the new one."""
    x = net.stem(x)
    old = x
    x += net.conv(x)
    return net.fc(F.relu(x) + 2 * old)


@member("in-place", IMAGE, trains=False, of=headed("stem conv after"))
def old_name_of_input(net, x):
    """The same, done to the map that another convolution gave, and then one reads it."""
    y = old = F.relu(net.stem(x))
    y += net.conv(y)
    y = F.relu(net.after(y))
    y += old
    return net.fc(y)


@member("in-place", IMAGE, of=headed("conv second", norm=norm, act=lambda: nn.ReLU(inplace=True)))
def rectified_twice(net, x):
    """ReLU in place, on a map that is read again: the second reader sees it rectified."""
    x = net.norm(net.conv(x))
    y = net.second(net.act(x))
    return net.fc(net.act(y + x))


@member("in-place", IMAGE, of=headed("conv", act=lambda: nn.ReLU(inplace=True)))
def rectified_convolution(net, x):
    """The same without a norm between."""
    raw = net.conv(x)
    return net.fc(net.act(raw) + raw)


@member("in-place", IMAGE, of=headed("conv", skip=partial(conv, 3), bn=norm))
def methods_in_place(net, x):
    """mul_, add_, sub_, div_: a map scaled and shifted where it lies."""
    y = net.conv(x)
    seen = y
    y.mul_(0.5).add_(net.skip(x)).sub_(0.1)
    z = net.bn(y)
    z.div_(2)
    return net.fc(z + seen)


@member("in-place", IMAGE, of=headed("conv", bn=norm))
def slices(net, x):
    """Parts of a map are set, and changed."""
    y = net.bn(net.conv(x))
    y[:, :3] = 0
    y[:, 3::2] += 1
    y[..., -1] = x[:, :1, :, 0]
    return net.fc(y)


@member("in-place", IMAGE, of=headed("conv"))
def views(net, x):
    """A part of a map is rectified, and the map read."""
    y = net.conv(x)
    flat = y.view(y.size(0), 8, -1)
    flat[:, 6:].neg_()
    y.narrow(1, 5, 2).mul_(3)
    half = y[:, :4]
    half.relu_()
    return net.fc(y)


@member("in-place", IMAGE, of=headed("a b c"))
def clamped(net, x):
    """clamp_, F.relu_, hardtanh and leaky_relu in place."""
    x = net.a(x)
    kept = x
    x.clamp_(-0.5, 0.8)
    y = net.b(x)
    F.leaky_relu_(y, 0.1)
    y = net.c(y)
    F.hardtanh(y, -1, 1, inplace=True)
    return net.fc(torch.relu_(y) + kept)


class SpoiltBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.relu, self.conv1, self.bn1, self.conv2 = nn.ReLU(inplace=True), conv(), norm(), conv()

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(self.relu(x))))
        return self.conv2(out) + x


@member("in-place", IMAGE)
def shortcut_spoilt():
    """A known slip: pre-activation by a ReLU in place, which the shortcut then gets too."""
    return nn.Sequential(conv(3), SpoiltBlock(), SpoiltBlock(), Head())


@member("in-place", IMAGE, of=headed("conv"))
def changes_its_input(net, x):
    """Normalizes the images that it was given, where they lie."""
    x.sub_(0.4).div_(0.3)
    x[:, 0] = x[:, 0].clamp(-2, 2)
    return net.fc(net.conv(x).relu_())


@member("in-place", IMAGE, of=headed("stem", paths=several(conv, conv, conv)))
def accumulator(net, x):
    """A sum that starts with zeros and grows."""
    x = net.stem(x)
    total = torch.zeros_like(x)
    for path in net.paths:
        total += path(x)
    total.relu_()
    return net.fc(total)


@member("in-place", IMAGE, of=headed("a", b=partial(conv, 3)))
def copied(net, x):
    """copy_, masked_fill_ and fill_ on maps that others still read; clone where it matters."""
    a, b = net.a(x), net.b(x)
    before = a.clone()
    alias = a.view_as(a)
    a.copy_(b)
    a.masked_fill_(before > 0, 0.3)
    b[:, 0].fill_(1.0)
    return net.fc(alias + before + b)


# ---- a batch is cut, folded or mixed


@member("patches", (3, 12, 12), of=layers("stem outside", inside=unit))
def windows(net, x):
    """Whole maps, then windows of them, then whole maps: residuals on each level."""
    x = F.relu(net.stem(x))
    n, c, h, w = x.shape
    s = 4
    windows = x.view(n, c, h // s, s, w // s, s).permute(0, 2, 4, 1, 3, 5).reshape(-1, c, s, s)
    windows = net.inside(windows) + windows
    y = windows.view(n, h // s, w // s, c, s, s).permute(0, 3, 1, 4, 2, 5).reshape(n, c, h, w)
    return net.fc(F.relu(net.outside(y) + x).mean((2, 3)))


@member("patches", (3, 11, 12), of=layers("a b c"))
def quadrants(net, x):
    """Corners laid side by side in the batch; sums of the parts."""
    corners = [x[:, :, :8, :8], x[:, :, -8:, :8], x[:, :, :8, -8:], x[:, :, -8:, -8:]]
    y = net.b(F.relu(net.a(torch.cat(corners, dim=0))))
    y = sum(torch.chunk(y, 4, dim=0))
    return net.fc(net.c(y).relu().mean((-2, -1)))


@member("patches", (4, 3, 8, 8), of={
    "frame": lambda: nn.Sequential(unit(3), nn.MaxPool2d(2), conv(), nn.AdaptiveAvgPool2d(1)),
    "score": lambda: nn.Linear(8, 1), "fc": lambda: nn.Linear(8, 5),
})  # fmt: skip
def video(net, clips):
    """Frames of a video go through a network for images."""
    b, t, *rest = clips.shape
    features = net.frame(clips.reshape(b * t, *rest)).flatten(1).unflatten(0, (b, t))
    weights = torch.softmax(net.score(features), dim=1)
    return net.fc((weights * features).sum(1))


@member("patches", (3, 8, 8), of=layers("stem extra mean"))
def half_of_the_samples(net, x):
    """Some samples take a way of their own; all are compared with their mean."""
    x = F.relu(net.stem(x))
    half = (x.shape[0] + 1) // 2
    x = torch.cat([net.extra(x[:half]), x[half:]], 0)
    x = x + net.mean(x.mean(0, keepdim=True))
    return net.fc(x.relu().amax((2, 3)))


@member("patches", (2, 10, 10), of=layers("", one=partial(conv, 1, 6), two=partial(conv, 12)))
def channels_as_samples(net, x):
    """Each channel is an image of its own; then dilation by folding places into the batch."""
    n, c, h, w = x.size()
    y = net.one(x.reshape(n * c, 1, h, w)).relu().view(n, c * 6, h, w)
    y = y.view(n, 12, h // 2, 2, w // 2, 2).permute(3, 5, 0, 1, 2, 4).flatten(0, 2)
    y = net.two(y).view(2, 2, n, 8, h // 2, w // 2).mean((0, 1))
    return net.fc(y.flatten(2).mean(2))


# ---- code that looks at sizes, and does one thing or another


@member("sizes", (3, 12, 12), of=layers("conv1", conv2=unit))
def halved_if_large(net, x):
    assert x.dim() == 4
    x = net.conv1(x)
    if x.shape[-1] > 8:
        x = F.max_pool2d(x, 2)
    if x.size(2) == x.size(3) and x.ndim == 4:
        x = net.conv2(x)
    return net.fc(x.mean((2, 3)))


@member("sizes", (3, 16, 16), of=layers("stem", step=unit, fc=lambda: nn.Linear(128, 5)))
def until_small(net, x):
    x = net.stem(x)
    while x.size(-1) > 4:
        x = F.avg_pool2d(net.step(x) + x, 2)
    return net.fc(x.view(len(x), -1))


@member("sizes", (3, 11, 9), of=layers("", conv=partial(conv, 3, stride=2), up=conv))
def padded_to_multiple(net, x):
    _, _, h, w = x.shape
    below, right = -h % 4, -w % 4
    x = F.relu(net.conv(F.pad(x, (0, right, 0, below))))
    x = net.up(F.interpolate(x, size=(h + below, w + right)))[:, :, :h, :w]
    return net.fc(F.avg_pool2d(x, (h // 2, w // 2), stride=1).flatten(2).sum(2))


@member("sizes", (3, 8, 8), of=layers("conv few many"))
def few_or_many(net, x):
    """What is done depends on how many samples there are."""
    x = net.conv(x)
    x = net.few(x) if x.shape[0] <= 4 else net.many(x) / len(x)
    if len(x) % 2:
        x = x.relu()
    return net.fc(x.mean((2, 3)))


@member("sizes", (3, 8, 8), of=layers(
    "conv", each=partial(conv, 2, 3), fc=lambda: nn.Linear(12, 5)
))  # fmt: skip
def loop_over_channels(net, x):
    x = net.conv(x)
    parts = [net.each(x[:, 2 * i : 2 * i + 2]) for i in range(x.shape[1] // 2)]
    x = torch.cat(parts, dim=1)
    return net.fc(x.relu().sum((2, 3)) / (x.shape[2] * x.shape[3]))
