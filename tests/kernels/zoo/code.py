"""How networks are written: what goes in and out, what stands twice, tricks of Python."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .entry import IMAGE, Sketch, chain, conv, member, norm, takes, unit


class Answer(NamedTuple):
    logits: Tensor
    hidden: list[Tensor]
    nothing: Tensor | None = None


@dataclass
class Output:
    logits: Tensor
    features: Tensor


class InputsAndOutputs(Sketch, kind="inputs and outputs"):
    @takes(IMAGE, (6,))
    def image_and_features(self, image, features):
        f = F.relu(self.Linear(6, 8)(features))
        y = self.conv()(self.conv(3)(image).relu())
        y = F.relu(y + f.unsqueeze(-1).unsqueeze(-1))
        return self.Bilinear(8, 8, 5)(y.mean((2, 3)), f)

    @takes(IMAGE, lambda n, g: torch.rand(n, 8, 8, generator=g) > 0.5)
    def masked(self, x, mask=None, scale=1.0):
        x = torch.relu(self.conv(3)(x))
        if mask is not None:
            x = x.masked_fill(mask[:, None], 0.0)
        return self.fc(self.conv()(x * scale).relu())

    @takes(IMAGE, None, 0.5)
    def mask_none(self, x, mask, scale):
        return self.masked(x, mask, scale)

    @takes(IMAGE, 3)
    def depth_given(self, x, depth):
        """A whole number says how often."""
        x, step = self.conv(3)(x), self.unit()
        for _ in range(depth):
            x = step(x) + x
        return self.fc(x / depth)

    @takes(lambda n, g: [torch.randn(n, *IMAGE, generator=g) for _ in range(2)])
    def pair(self, images):
        """Two images in one list."""
        body, (first, second) = self.conv(3), images
        return self.fc((body(first) - body(second)).abs())

    @takes(IMAGE, IMAGE, lambda n, g: torch.randint(2, (n,), generator=g))
    def however_many(self, *images):
        body, (*maps, flags) = self.conv(3), images
        return self.fc(torch.stack([F.relu(body(m)) for m in maps]).sum(0)) * flags[:, None]

    @takes((3, 12, 12))
    def auxiliary(self, x):
        """A tuple: the classes, and those of a head on the way; the map in between, too."""
        middle = self.conv(stride=2)(F.relu(self.conv(3)(x)))
        return self.fc(self.conv()(F.relu(middle))), self.point()(middle).mean((2, 3)), middle

    @takes((3, 16, 16))
    def pyramid(self, x):
        """A dictionary of maps, as detectors make it."""
        levels = []
        for inputs in (3, 8, 8):
            x = F.relu(self.conv(inputs, stride=2)(x))
            levels.append(x)
        top = self.conv(8, 6, 1)(levels.pop())
        found = OrderedDict({"p2": self.conv(6, 6)(top)})
        for i in (1, 0):
            up = F.interpolate(top, scale_factor=2, mode="nearest")
            top = self.conv(8, 6, 1)(levels.pop()) + up
            found[f"p{i}"] = self.conv(6, 6)(top)
        return found

    def hidden_states(self, x):
        """A named tuple with all maps, among them some that are read before and after a ReLU."""
        hidden = [x]
        for inputs in (3, 8, 8):
            x = self.conv(inputs)(x)
            hidden.append(x)
            x = x.relu()
        return Answer(self.fc(x), hidden)

    def data_class(self, x):
        features = self.conv(3)(x)
        return Output(self.fc(features), features)

    def same_twice(self, x):
        """Outputs that are the input, one another, a view of one another, a size."""
        y = self.conv(3)(x)
        z = F.relu(self.conv()(y) + y)
        return [x, y, y, z, z[:, :2], {"argmax": z.flatten(1).argmax(1), "size": z.shape[2]}]


# ---- layers that stand in several places


class Shared(Sketch, kind="shared"):
    def convolution_twice(self, x):
        """One convolution, but each time another norm after it; once with ReLU, once without."""
        x, again = self.conv(3)(x), self.conv()
        x = F.relu(self.norm()(again(x)))
        x = self.norm()(again(x)) + x
        return self.fc(again(x))

    def one_activation(self, x):
        """One ReLU in place and one BatchNorm for everything."""
        bn, relu = self.norm(), self.inplace()
        x = relu(bn(self.conv(3)(x)))
        y = relu(bn(self.conv()(x)))
        y = bn(self.conv()(y)) + x
        return self.Linear(8, 5)(relu(y).flatten(2).mean(2))

    @takes((3, 16, 16))
    def one_head_for_all_sizes(self, x):
        """A detector's head on maps of several sizes, one tensor of all their places."""
        head = self.layer(lambda: nn.Sequential(conv(), nn.ReLU(), conv(8, 4)))
        found = []
        for inputs in (3, 8, 8):
            x = torch.relu(self.conv(inputs, stride=2)(x))
            y = head(x)
            found.append(y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, 4))
        return torch.cat(found, dim=1)

    @takes(IMAGE, IMAGE)
    def siamese(self, a, b):
        body = self.conv(3)
        u, v = (F.relu(body(each)).mean((2, 3)) for each in (a, b))
        return self.Linear(8, 1)(torch.abs(u - v)).squeeze(-1), F.cosine_similarity(u, v)

    def transposed_twin(self, x):
        """An autoencoder whose way back has the weights of the way there."""
        there = self.Conv2d(3, 8, 3, bias=False)
        return self.conv(3, 3)(F.conv_transpose2d(F.relu(there(x)), there.weight))


@member("shared: block_thrice", IMAGE)
def block_thrice():
    block = unit()
    return nn.Sequential(
        conv(3), block, block, nn.MaxPool2d(2), block, nn.Flatten(), nn.Linear(128, 5)
    )


@member("shared: tied", IMAGE)
class Tied(nn.Module):
    """Two layers with one weight, of which only one has a bias; a linear layer used backwards."""

    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b = conv(3), conv(), nn.Conv2d(8, 8, 3, bias=False)
        self.b.weight = self.a.weight
        self.code, self.bias = nn.Linear(8, 6), nn.Parameter(torch.randn(8))

    def forward(self, x):
        x = F.relu(self.b(F.relu(self.a(self.stem(x)))))
        x = torch.tanh(self.code(x.mean((2, 3))))
        return F.linear(x, self.code.weight.t(), self.bias)


# ---- tricks


@member("tricks: hooked", IMAGE)
class Hooked(nn.Module):
    """Hooks that change what goes in and what comes out."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.fc = conv(3), unit(), conv(), nn.Linear(8, 5)
        self.a.register_forward_hook(lambda module, inputs, output: output * 2)
        self.b.register_forward_pre_hook(lambda module, inputs: (inputs[0].abs(),))
        self.b[1].register_forward_hook(self._more)

    def _more(self, module, inputs, output):
        return output + 0.5

    def forward(self, x):
        return self.fc(self.c(self.b(self.a(x))).mean((2, 3)))


@member("tricks: lists_and_dicts", IMAGE)
class ListsAndDicts(nn.Module):
    """Modules that PyTorch knows by another name than the code does."""

    def __init__(self):
        super().__init__()
        self.layers = {"stem": conv(3), "norm": norm(), "last": conv()}
        for name, layer in self.layers.items():
            self.add_module(f"_{name}", layer)
        self.steps = [("stem", None), ("norm", torch.relu), ("last", torch.tanh)]
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        for name, act in self.steps:
            x = self.layers[name](x)
            x = act(x) if act else x
        return self.fc(x.mean((2, 3)))


@member("tricks: by_name", IMAGE)
class ByName(nn.Module):
    """getattr, modules that may be missing, functions kept as attributes."""

    def __init__(self):
        super().__init__()
        for i in range(3):
            self.register_module(f"layer{i}", conv(8 if i else 3))
        self.register_module("downsample", None)
        self.act, self.pool = partial(F.leaky_relu, negative_slope=0.1), lambda x: x.mean((2, 3))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        for i in range(3):
            x = self.act(getattr(self, f"layer{i}")(x))
        x = x if self.downsample is None else self.downsample(x)
        return self.fc(self.pool(x))


class StandardConv2d(nn.Conv2d):
    """Weight standardisation."""

    def forward(self, x):
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        std = weight.view(weight.size(0), -1).std(dim=1).view(-1, 1, 1, 1) + 1e-5
        return F.conv2d(x, weight / std, self.bias, self.stride, self.padding)


chain("tricks: standardised_weights", IMAGE, lambda: [
    StandardConv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), conv(), nn.ReLU(),
    StandardConv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 5),
])  # fmt: skip

chain("tricks: only_vectors", (20,), lambda: [
    nn.Linear(20, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32),
    nn.Linear(32, 5), nn.Softmax(dim=-1),
])  # fmt: skip


ACTIVATIONS = (
    nn.GELU, nn.SiLU, nn.Hardswish, partial(nn.PReLU, 8), nn.Mish, nn.ELU, nn.Softsign, nn.CELU,
    partial(nn.Threshold, 0.1, -0.2), nn.Hardtanh, nn.Softmax2d,
)  # fmt: skip


class Tricks(Sketch, kind="tricks"):
    def all_activations(self, x):
        """One of each, as modules, functions and methods."""
        x = self.conv(3)(x)
        for act in ACTIVATIONS:
            x = self.layer(act)(self.conv()(x))
        last = self.conv()
        x = last(last(x).sigmoid() * 9) / 3
        x = torch.where(x > 0.1, x, 0.1 * x.exp())
        return self.fc(F.silu(last(torch.sqrt(torch.abs(x) + 1e-2))).tanh())

    def scaled_residual(self, x):
        """Layer scale, ReZero, highway gates, and a maximum of two convolutions."""
        x, c = self.conv(3)(x), self.conv()
        x = x + self.parameter(8, 1, 1) * F.relu(self.conv()(x))
        x = torch.relu(x + self.parameter() * self.conv()(x) + 0.1 * x)
        t = torch.sigmoid(self.conv()(x))
        x = t * F.relu(c(x)) + (1 - t) * x
        return self.fc(torch.maximum(c(x), self.conv()(x)))

    def checkpointed(self, x):
        """Parts are computed again in the backward pass."""
        x, a = self.conv(3)(x), self.conv()
        return self.fc(checkpoint(lambda x: F.relu(a(x)), x, use_reentrant=False) + x)

    def frozen(self, x):
        """A backbone that is not trained, behind no_grad; channels last."""
        backbone = self.layer(lambda: unit(3).requires_grad_(False))
        with torch.no_grad():
            x = backbone((x - 0.4).contiguous(memory_format=torch.channels_last))
        x = F.relu(self.conv()(x.detach()))
        return self.fc(x - self.conv()(x).detach())

    @takes((4, 6))
    def sentences(self, x):
        """Linear layers on tensors of three and of four dimensions."""
        x = F.relu(self.Linear(6, 12)(x))
        x = self.Linear(4, 8)(x.transpose(-1, -2)).transpose(-1, -2)
        x = x.unsqueeze(1).expand(-1, 2, -1, -1)
        return self.Linear(12, 5, bias=False)(x).mean((1, 2))
