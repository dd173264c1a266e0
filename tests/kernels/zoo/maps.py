"""What networks do with maps: add what is no map, overwrite them, cut them, look at their sizes."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import Sketch, takes, unit


class Broadcast(Sketch, kind="broadcast"):
    """What is added to maps is not always a map of the same shape."""

    image = (3, 10, 10)

    def channel_bias(self, x):
        """A parameter (1, C, 1, 1) where others have a bias; one (C, 1, 1) from the left."""
        bias = self.parameter(1, 8, 1, 1)
        x = F.relu(self.norm()(self.conv(3)(x)) + bias) * bias
        return self.head(torch.relu(self.parameter(8, 1, 1) + self.conv()(x)))

    def position_map(self, x):
        """A parameter (1, C, H, W) added to a convolution's output: once a segmentation fault."""
        position = self.parameter(1, 8, 10, 10)
        x = F.relu(self.norm()(self.conv(3)(x)) + position)
        x = torch.relu(self.conv()(x) + self.parameter(8, 10, 10))
        return self.head(self.conv()(x) + position)

    def context(self, x):
        """A vector of each sample, (N, C, 1, 1), added to its map."""
        first = self.conv(3)
        x = first(x)
        context = self.point()(x.mean((2, 3), keepdim=True))
        return self.head(torch.relu(x + context) + first.bias.view(1, -1, 1, 1))

    def one_channel(self, x):
        """Maps of one channel added to each other, and to one of many, from either side; a pool."""
        many, one = self.conv(3)(x), self.conv(3, 1)(x)
        many = F.relu(one + self.conv(8, 1, 1)(many) + many)
        many = many + F.max_pool2d(one, 3, 1, 1)
        return self.head(many + self.conv(8, 1)(many))

    def scalars(self, x):
        """Fixup: parameters of one number around convolutions without norms."""
        a, b, scale = self.parameter(1), self.parameter(1), self.parameter()
        identity = x = self.conv(3)(x)
        out = F.relu(self.conv()(x + a) + b)
        out = self.conv()(out + a) * scale + b
        return self.head(F.relu(out + identity))

    def numbers(self, x):
        """Python's numbers: constants and sizes; and a map that is added to itself."""
        two = self.conv()
        x = self.conv(3)(x) + 0.5
        x = torch.relu(two(x) + x.shape[1])
        x = x.shape[-1] + self.conv()(x)
        y = two(torch.add(self.conv()(x), 3, alpha=2))
        return self.head(y + y) + x.size(1)

    @takes((3, 9, 7))
    def rows_and_columns(self, x):
        """An embedding for rows, (1, C, H, 1), one for columns, (1, C, 1, W); numbers of places."""
        places = torch.arange(x.shape[3], dtype=x.dtype, device=x.device) / x.shape[3]
        rows, columns = self.parameter(1, 8, 9, 1), self.parameter(1, 8, 1, 7)
        return self.head(self.conv(3)(x) + places + (rows + columns))

    def learnt_template(self, x):
        """A batch of one, made by a convolution from a parameter, added to the batch."""
        template = self.conv(4)(self.parameter(1, 4, 10, 10))
        x = F.relu(self.conv(3)(x) + template)
        return self.head(torch.add(template, x))

    def weighted_addition(self, x):
        """torch.add with alpha, subtraction, and the sum of a list."""
        a, b, c = self.conv(3), self.conv(3), self.conv()
        y = torch.add(a(x), b(x), alpha=-0.5).relu()
        y = y.add(c(y), alpha=2.0)
        return self.head(sum([y, b(x), a(x)]) - c(y))

    @takes((3, 10, 10), lambda n, g: torch.randint(50, (n,), generator=g))
    def time_embedding(self, x, t):
        """As in diffusion: a vector from a whole number, added to each place."""
        t = self.Linear(6, 8)(F.silu(self.Embedding(50, 6)(t)))
        h = self.conv(3)(x) + t[:, :, None, None]
        return self.head(self.conv()(F.silu(self.GroupNorm(2, 8)(h))))


class InPlace(Sketch, kind="in-place"):
    """Operations that overwrite a map which someone else may read."""

    image = (3, 10, 10)

    @takes(trains=False)
    def old_name(self, x):
        """The old map is read by another name: it is the new one. Here and by a convolution."""
        x = old = self.conv(3)(x)
        x += self.conv()(x)
        y = old = F.relu(self.conv()(F.relu(x) + 2 * old))
        y += self.conv()(y)
        y = F.relu(self.conv()(y))
        y += old
        return self.head(y)

    def rectified_twice(self, x):
        """A map that ReLU in place has read is read again, rectified; with and without a norm."""
        act = self.inplace()
        x = self.norm()(self.conv(3)(x))
        y = self.conv()(act(x))
        raw = self.conv()(act(y + x))
        return self.head(self.inplace()(raw) + raw)

    def methods_in_place(self, x):
        """mul_, add_, sub_, div_: a map scaled and shifted where it lies."""
        y = seen = self.conv(3)(x)
        y.mul_(0.5).add_(self.conv(3)(x)).sub_(0.1)
        z = self.norm()(y)
        z.div_(2)
        return self.head(z + seen)

    def slices_and_views(self, x):
        """Parts of a map are set, and changed, also by views; then the map is read."""
        y = self.norm()(self.conv(3)(x))
        y[:, :3] = 0
        y[:, 3::2] += 1
        y[..., -1] = x[:, :1, :, 0]
        y = self.conv()(y)
        flat = y.view(y.size(0), 8, -1)
        flat[:, 6:].neg_()
        y.narrow(1, 5, 2).mul_(3)
        half = y[:, :4]
        half.relu_()
        return self.head(y)

    def clamped(self, x):
        """clamp_, F.relu_, hardtanh and leaky_relu in place."""
        x = kept = self.conv(3)(x)
        x.clamp_(-0.5, 0.8)
        y = self.conv()(x)
        F.leaky_relu_(y, 0.1)
        y = self.conv()(y)
        F.hardtanh(y, -1, 1, inplace=True)
        return self.head(torch.relu_(y) + kept)

    def shortcut_spoilt(self, x):
        """A known slip: pre-activation by a ReLU in place, which the shortcut then gets too."""
        x = self.conv(3)(x)
        for _ in range(2):
            relu = self.inplace()
            out = relu(self.norm()(self.conv()(relu(x))))
            x = self.conv()(out) + x
        return self.head(x)

    def changes_its_input(self, x):
        """Normalizes the images that it was given, where they lie."""
        x.sub_(0.4).div_(0.3)
        x[:, 0] = x[:, 0].clamp(-2, 2)
        return self.head(self.conv(3)(x).relu_())

    def accumulator(self, x):
        """A sum that starts with zeros and grows."""
        x = self.conv(3)(x)
        total = torch.zeros_like(x)
        for _ in range(3):
            total += self.conv()(x)
        total.relu_()
        return self.head(total)

    def copied(self, x):
        """copy_, masked_fill_ and fill_ on maps that others still read; clone where it matters."""
        a, b = self.conv(3)(x), self.conv(3)(x)
        before, alias = a.clone(), a.view_as(a)
        a.copy_(b)
        a.masked_fill_(before > 0, 0.3)
        b[:, 0].fill_(1.0)
        return self.head(alias + before + b)


class Patches(Sketch, kind="patches"):
    """A batch is cut, folded or mixed."""

    @takes((3, 12, 12))
    def windows(self, x):
        """Whole maps, then windows of them, then whole maps: residuals on each level."""
        x = F.relu(self.conv(3)(x))
        n, c, h, w = x.shape
        s = 4
        windows = x.view(n, c, h // s, s, w // s, s).permute(0, 2, 4, 1, 3, 5).reshape(-1, c, s, s)
        windows = self.unit()(windows) + windows
        y = windows.view(n, h // s, w // s, c, s, s).permute(0, 3, 1, 4, 2, 5).reshape(n, c, h, w)
        return self.fc(F.relu(self.conv()(y) + x))

    @takes((3, 11, 12))
    def quadrants(self, x):
        """Corners laid side by side in the batch; sums of the parts."""
        corners = [x[:, :, :8, :8], x[:, :, -8:, :8], x[:, :, :8, -8:], x[:, :, -8:, -8:]]
        y = self.conv()(F.relu(self.conv(3)(torch.cat(corners, dim=0))))
        return self.head(sum(torch.chunk(y, 4, dim=0)))

    @takes((4, 3, 8, 8))
    def video(self, clips):
        """Frames of a video go through a network for images."""
        b, t, *rest = clips.shape
        y = self.conv()(F.max_pool2d(self.unit(3)(clips.reshape(b * t, *rest)), 2))
        features = F.adaptive_avg_pool2d(y, 1).flatten(1).unflatten(0, (b, t))
        weights = torch.softmax(self.Linear(8, 1)(features), dim=1)
        return self.Linear(8, 5)((weights * features).sum(1))

    def half_of_the_samples(self, x):
        """Some samples take a way of their own; all are compared with their mean."""
        x = F.relu(self.conv(3)(x))
        half = (x.shape[0] + 1) // 2
        x = torch.cat([self.conv()(x[:half]), x[half:]], 0)
        x = x + self.conv()(x.mean(0, keepdim=True))
        return self.Linear(8, 5)(x.relu().amax((2, 3)))

    @takes((2, 10, 10))
    def channels_as_samples(self, x):
        """Each channel is an image of its own; then dilation by folding places into the batch."""
        n, c, h, w = x.size()
        y = self.conv(1, 6)(x.reshape(n * c, 1, h, w)).relu().view(n, c * 6, h, w)
        y = y.view(n, 12, h // 2, 2, w // 2, 2).permute(3, 5, 0, 1, 2, 4).flatten(0, 2)
        y = self.conv(12)(y).view(2, 2, n, 8, h // 2, w // 2).mean((0, 1))
        return self.Linear(8, 5)(y.flatten(2).mean(2))


class Sizes(Sketch, kind="sizes"):
    """Code that looks at sizes, and does one thing or another."""

    @takes((3, 12, 12))
    def halved_if_large(self, x):
        assert x.dim() == 4
        x, then = self.conv(3)(x), self.unit()
        if x.shape[-1] > 8:
            x = F.max_pool2d(x, 2)
        if x.size(2) == x.size(3) and x.ndim == 4:
            x = then(x)
        return self.fc(x)

    @takes((3, 16, 16))
    def until_small(self, x):
        x, step = self.conv(3)(x), self.unit()
        while x.size(-1) > 4:
            x = F.avg_pool2d(step(x) + x, 2)
        return self.Linear(128, 5)(x.view(len(x), -1))

    @takes((3, 11, 9))
    def padded_to_multiple(self, x):
        _, _, h, w = x.shape
        below, right = -h % 4, -w % 4
        x = F.relu(self.conv(3, stride=2)(F.pad(x, (0, right, 0, below))))
        x = self.conv()(F.interpolate(x, size=(h + below, w + right)))[:, :, :h, :w]
        return self.Linear(8, 5)(F.avg_pool2d(x, (h // 2, w // 2), stride=1).flatten(2).sum(2))

    def few_or_many(self, x):
        """What is done depends on how many samples there are."""
        x, few, many = self.conv(3)(x), self.conv(), self.conv()
        x = few(x) if x.shape[0] <= 4 else many(x) / len(x)
        return self.fc(x.relu() if len(x) % 2 else x)

    def loop_over_channels(self, x):
        x, each = self.conv(3)(x), self.conv(2, 3)
        parts = [each(x[:, 2 * i : 2 * i + 2]) for i in range(x.shape[1] // 2)]
        y = torch.cat(parts, dim=1).relu()
        return self.Linear(12, 5)(y.sum((2, 3)) / (y.shape[2] * y.shape[3]))


class UNet(Sketch, kind="u-net"):
    """Down and up again."""

    @takes((3, 13, 15))
    def transposed_up(self, x):
        """The one on everyone's disk: transposed convolutions, padded to fit."""

        def up(x1, x2):
            dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
            x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            return torch.cat([x2, x1], dim=1)

        x1 = self.unit(3, 6)(x)
        x2 = self.unit(6, 8)(F.max_pool2d(x1, 2))
        x3 = self.unit(8, 12)(F.max_pool2d(x2, 2))
        x = self.unit(16)(up(self.ConvTranspose2d(12, 8, 2, stride=2)(x3), x2))
        x = self.unit(12, 6)(up(self.ConvTranspose2d(8, 6, 2, stride=2)(x), x1))
        return self.conv(6, 2, 1)(x)

    @takes((3, 12, 12))
    def interpolated(self, x):
        """Bilinear, sums instead of joins, sigmoid at the end."""
        encoder = self.layer(lambda: nn.ModuleList([unit(3), unit(), unit()]))
        decoder = self.layer(lambda: nn.ModuleList([unit(), unit()]))
        skips = []
        for i, stage in enumerate(encoder):
            x = stage(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for stage in decoder:
            skip = skips.pop()
            up = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = stage(up + skip)
        return torch.sigmoid(self.conv(8, 1, 1)(x)).squeeze(1)

    @takes((3, 9, 9))
    def autoencoder(self, x):
        x = F.leaky_relu(self.conv(3, stride=2)(x), 0.2, inplace=True)
        x = self.Flatten()(F.leaky_relu(self.conv(8, 12, stride=2)(x), 0.2))
        x = self.Linear(6, 108)(self.ReLU()(self.Linear(108, 6)(x)))
        x = self.ConvTranspose2d(12, 8, 3, 2, 1)(self.Unflatten(1, (12, 3, 3))(x))
        return self.Tanh()(self.ConvTranspose2d(8, 3, 3, 2, padding=1)(F.relu(x)))
