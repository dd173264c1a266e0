"""How networks are written: what goes in and out, what stands twice, tricks of Python."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .entry import (
    always,
    conv,
    integers,
    layers,
    member,
    norm,
    normal,
    one_by_one,
    parameter,
    several,
    unit,
)

IMAGE = (3, 8, 8)


# ---- several inputs


@member("inputs and outputs", IMAGE, (6,), of=layers(
    "image second", features=lambda: nn.Linear(6, 8), fc=lambda: nn.Bilinear(8, 8, 5)
))  # fmt: skip
def image_and_features(net, image, features):
    f = F.relu(net.features(features))
    y = F.relu(net.second(net.image(image).relu()) + f.unsqueeze(-1).unsqueeze(-1))
    return net.fc(y.mean((2, 3)), f)


@member("inputs and outputs", IMAGE, lambda n, g: torch.rand(n, 8, 8, generator=g) > 0.5,
        of=layers("conv1 conv2"))  # fmt: skip
def masked(net, x, mask=None, scale=1.0):
    x = torch.relu(net.conv1(x))
    if mask is not None:
        x = x.masked_fill(mask[:, None], 0.0)
    return net.fc(net.conv2(x * scale).relu().mean((2, 3)))


@member("inputs and outputs", IMAGE, always(None), always(0.5), of=layers("conv1 conv2"))
def mask_none(net, x, mask, scale):
    return masked(net, x, mask, scale)


@member("inputs and outputs", IMAGE, always(3), of=layers("stem", step=unit))
def depth_given(net, x, depth):
    """A whole number says how often."""
    x = net.stem(x)
    for _ in range(depth):
        x = net.step(x) + x
    return net.fc(x.mean((2, 3)) / depth)


@member("inputs and outputs", lambda n, g: [normal(*IMAGE)(n, g), normal(*IMAGE)(n, g)],
        of=layers("body"))  # fmt: skip
def pair(net, images):
    """Two images in one list."""
    first, second = images
    return net.fc((net.body(first) - net.body(second)).abs().mean((2, 3)))


@member("inputs and outputs", IMAGE, IMAGE, integers(2), of=layers("body"))
def however_many(net, *images):
    *maps, flags = images
    y = torch.stack([F.relu(net.body(m)) for m in maps]).sum(0)
    return net.fc(y.mean((2, 3))) * flags[:, None]


# ---- several outputs


@member(
    "inputs and outputs", (3, 12, 12), of=layers("a c", b=partial(conv, stride=2), aux=one_by_one)
)
def auxiliary(net, x):
    """A tuple: the classes, and those of a head on the way; the map in between, too."""
    middle = net.b(F.relu(net.a(x)))
    aux = net.aux(middle).mean((2, 3))
    return net.fc(net.c(F.relu(middle)).mean((2, 3))), aux, middle


@member("inputs and outputs", (3, 16, 16), of={
    "down": several(*(partial(conv, n, stride=2) for n in (3, 8, 8))),
    "lateral": several(*(partial(conv, 8, 6, 1),) * 3),
    "smooth": several(*(partial(conv, 6, 6),) * 3),
})  # fmt: skip
def pyramid(net, x):
    """A dictionary of maps, as detectors make it."""
    levels = []
    for layer in net.down:
        x = F.relu(layer(x))
        levels.append(x)
    top = net.lateral[2](levels[2])
    found = OrderedDict({"p2": net.smooth[2](top)})
    for i in (1, 0):
        top = net.lateral[i](levels[i]) + F.interpolate(top, scale_factor=2, mode="nearest")
        found[f"p{i}"] = net.smooth[i](top)
    return found


class Answer(NamedTuple):
    logits: Tensor
    hidden: list[Tensor]
    nothing: Tensor | None = None


@member("inputs and outputs", IMAGE, of=layers("a b c"))
def hidden_states(net, x):
    """A named tuple with all maps, among them some that are read before and after a ReLU."""
    hidden = [x]
    for layer in (net.a, net.b, net.c):
        x = layer(x)
        hidden.append(x)
        x = x.relu()
    return Answer(net.fc(x.mean((2, 3))), hidden)


@dataclass
class Output:
    logits: Tensor
    features: Tensor


@member("inputs and outputs", IMAGE, of=layers("body"))
def data_class(net, x):
    features = net.body(x)
    return Output(net.fc(features.mean((2, 3))), features)


@member("inputs and outputs", IMAGE, of=layers("conv second"))
def same_twice(net, x):
    """Outputs that are the input, one another, a view of one another, a size."""
    y = net.conv(x)
    z = F.relu(net.second(y) + y)
    return [x, y, y, z, z[:, :2], {"argmax": z.flatten(1).argmax(1), "size": z.shape[2]}]


# ---- layers that stand in several places


@member("shared", IMAGE, of=layers("stem conv", bn1=norm, bn2=norm))
def convolution_twice(net, x):
    """One convolution, but each time another norm after it; and once with ReLU, once without."""
    x = net.stem(x)
    x = F.relu(net.bn1(net.conv(x)))
    x = net.bn2(net.conv(x)) + x
    return net.fc(net.conv(x).mean((2, 3)))


@member("shared", IMAGE)
def block_thrice():
    block = unit()
    return nn.Sequential(
        conv(3), block, block, nn.MaxPool2d(2), block, nn.Flatten(), nn.Linear(128, 5)
    )


@member("shared", IMAGE)
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


@member("shared", IMAGE, of=layers("a b c", bn=norm, relu=lambda: nn.ReLU(inplace=True)))
def one_activation(net, x):
    """One ReLU in place and one BatchNorm for everything."""
    x = net.relu(net.bn(net.a(x)))
    y = net.relu(net.bn(net.b(x)))
    y = net.bn(net.c(y)) + x
    return net.fc(net.relu(y).flatten(2).mean(2))


@member("shared", (3, 16, 16), of={
    "stages": several(*(partial(conv, n, stride=2) for n in (3, 8, 8))),
    "head": lambda: nn.Sequential(conv(), nn.ReLU(), conv(8, 4)),
})  # fmt: skip
def one_head_for_all_sizes(net, x):
    """A detector's head on maps of several sizes, one tensor of all their places."""
    found = []
    for stage in net.stages:
        x = torch.relu(stage(x))
        y = net.head(x)
        found.append(y.permute(0, 2, 3, 1).reshape(y.shape[0], -1, 4))
    return torch.cat(found, dim=1)


@member("shared", IMAGE, IMAGE, of=layers("body", fc=lambda: nn.Linear(8, 1)))
def siamese(net, a, b):
    u, v = (F.relu(net.body(each)).mean((2, 3)) for each in (a, b))
    return net.fc(torch.abs(u - v)).squeeze(-1), F.cosine_similarity(u, v)


@member("shared", IMAGE, of={
    "conv": lambda: nn.Conv2d(3, 8, 3, bias=False), "post": partial(conv, 3, 3),
})  # fmt: skip
def transposed_twin(net, x):
    """An autoencoder whose way back has the weights of the way there."""
    return net.post(F.conv_transpose2d(F.relu(net.conv(x)), net.conv.weight))


# ---- tricks


@member("tricks", IMAGE)
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


@member("tricks", IMAGE)
class ListsAndDicts(nn.Module):
    """Modules that PyTorch knows by another name than the code does."""

    def __init__(self):
        super().__init__()
        self.layers = {"stem": conv(3), "norm": nn.BatchNorm2d(8), "last": conv()}
        for name, layer in self.layers.items():
            self.add_module(f"_{name}", layer)
        self.steps = [("stem", None), ("norm", torch.relu), ("last", torch.tanh)]
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        for name, act in self.steps:
            x = self.layers[name](x)
            x = act(x) if act else x
        return self.fc(x.mean((2, 3)))


@member("tricks", IMAGE)
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


@member("tricks", IMAGE)
def standardised_weights():
    return nn.Sequential(
        StandardConv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), conv(), nn.ReLU(),
        StandardConv2d(8, 8, 3), nn.Flatten(), nn.Linear(288, 5),
    )  # fmt: skip


def activations():
    found = [
        nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.PReLU(8), nn.Mish(), nn.ELU(), nn.Softsign(),
        nn.CELU(), nn.Threshold(0.1, -0.2), nn.Hardtanh(), nn.Softmax2d(),
    ]  # fmt: skip
    return nn.Sequential(conv(3), *(layer for act in found for layer in (conv(), act)))


@member("tricks", IMAGE, of=layers("", body=activations, conv=conv))
def all_activations(net, x):
    """One of each, as modules, functions and methods."""
    x = net.conv(net.body(x)).sigmoid()
    x = net.conv(x * 9) / 3
    x = torch.where(x > 0.1, x, 0.1 * x.exp())
    return net.fc(F.silu(net.conv(torch.sqrt(torch.abs(x) + 1e-2))).tanh().mean((2, 3)))


@member(
    "tricks", IMAGE, of=layers("stem a b gate c d", gamma=parameter(8, 1, 1), alpha=parameter())
)
def scaled_residual(net, x):
    """Layer scale, ReZero, highway gates, and a maximum of two convolutions."""
    x = net.stem(x)
    x = x + net.gamma * F.relu(net.a(x))
    x = torch.relu(x + net.alpha * net.b(x) + 0.1 * x)
    t = torch.sigmoid(net.gate(x))
    x = t * F.relu(net.c(x)) + (1 - t) * x
    return net.fc(torch.maximum(net.c(x), net.d(x)).mean((2, 3)))


@member("tricks", IMAGE, of=layers("stem a"))
def checkpointed(net, x):
    """Parts are computed again in the backward pass."""
    x = net.stem(x)
    x = checkpoint(lambda x: F.relu(net.a(x)), x, use_reentrant=False) + x
    return net.fc(x.mean((2, 3)))


@member("tricks", IMAGE, of=layers(
    "", backbone=lambda: unit(3).requires_grad_(False), neck=conv, twin=conv
))  # fmt: skip
def frozen(net, x):
    """A backbone that is not trained, behind no_grad; channels last."""
    with torch.no_grad():
        x = net.backbone((x - 0.4).contiguous(memory_format=torch.channels_last))
    x = F.relu(net.neck(x.detach()))
    return net.fc((x - net.twin(x).detach()).mean((2, 3)))


@member("tricks", (20,))
def only_vectors():
    return nn.Sequential(
        nn.Linear(20, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32),
        nn.Linear(32, 5), nn.Softmax(dim=-1),
    )  # fmt: skip


@member("tricks", (4, 6), of={
    "a": lambda: nn.Linear(6, 12), "b": lambda: nn.Linear(4, 8),
    "c": lambda: nn.Linear(12, 5, bias=False),
})  # fmt: skip
def sentences(net, x):
    """Linear layers on tensors of three and of four dimensions."""
    x = F.relu(net.a(x))
    x = net.b(x.transpose(-1, -2)).transpose(-1, -2)
    return net.c(x.unsqueeze(1).expand(-1, 2, -1, -1)).mean((1, 2))
