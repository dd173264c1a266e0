"""Random networks: programs that are drawn line by line from a table of forms.

Each line is run as soon as it is drawn, for some samples: so its result has a shape, and what can't
be run is not in the program. Since a program is the source of a class, one that fails can be read,
copied and run.
"""

import re
import zlib
from functools import cached_property, partial
from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Generator, nn

from .entry import lived_in

_SAMPLES = 12  # with which lines are tried
_NAMES: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
_MOST = (8 * _SAMPLES, 16, 14, 14)  # of samples, channels, rows and columns

# What can be done to maps `v`, in groups that are drawn so often: `b` is what can be added to them,
# `m` what can be joined to them, <> is around what is made once. Numbers: see `Writer`.
MAPS = [
    (5, ["<nn.Conv2d({c}, {g} * {o}, {k}, {s}, {p}, {d}, groups={g}, bias={flag})>({v})"]),
    (1, ["{shared}({v})"]),
    (3, ["<nn.BatchNorm2d({c})>({v})", "<nn.BatchNorm2d({c})>({v})", "<nn.GroupNorm(1, {c})>({v})",
         "<nn.BatchNorm2d({c}, affine=False)>({v})",
         "<nn.BatchNorm2d({c}, track_running_stats=False)>({v})",
         "<nn.BatchNorm2d({c}, eps=0.1, momentum=None)>({v})"]),
    (1, ["{v}[:, :{part}].mul_(2)", "{v}[:, {part}:].zero_()", "{v}[:, :, :{h2}].neg_()",
         "{v}.narrow(1, 0, {part}).add_(0.5)"]),
    (2, ["{v} + <nn.Parameter(torch.randn(1, {c}, 1, 1))>",
         "<nn.Parameter(torch.randn(1, {c}, {h}, {w}))> + {v}",
         "torch.add({v}, <nn.Parameter(torch.randn({c}, 1, 1))>)",
         "{v} * <nn.Parameter(torch.randn(1, 1, {h}, {w}))>",
         "{v} + <nn.Parameter(torch.randn({w}))>", "<nn.Parameter(torch.randn(()))> * {v}"]),
    # A batch of one that comes from a parameter, by way of a convolution.
    (1, ["<nn.Conv2d(2, {c}, 3, padding=1)>(<nn.Parameter(torch.randn(1, 2, {h}, {w}))>)"]),
    (2, ["torch.cat([{v}, {m}], {axis})", "torch.cat([{v}, {m}, {v}], {axis})",
         "torch.cat(({v}, {v}.flip(2)[:, :, :1]), 2)"]),
    (1, ["{v}.chunk(2, dim=1)[{i}]", "torch.split({v}, {part}, 1)[0]"]),
    (1, ["{v}[:, :{part}]", "{v}[:, ::2]", "{v}[:, :, ::2, ::2]", "{v}[..., :-1]"]),
    (2, ["<nn.MaxPool2d({pool})>({v})", "<nn.AvgPool2d({pool})>({v})",
         "<nn.AvgPool2d({pool}, count_include_pad=False)>({v})", "F.max_pool2d({v}, {pool})",
         "F.avg_pool2d({v}, {pool})", "<nn.AdaptiveAvgPool2d((3, 2))>({v})",
         "<nn.AdaptiveMaxPool2d(2)>({v})", "F.max_pool2d({v}, 2, return_indices=True)[0]"]),
    (1, ["{v}.mean((2, 3), keepdim=True)", "{v}.mean(1, keepdim=True)", "{v}.amax((2, 3), True)",
         "torch.mean({v}, dim=0, keepdim=True)", "F.adaptive_avg_pool2d({v}, 1)"]),
    # Samples, channels and places change their roles.
    (4, ["{v}.transpose(2, 3)", "{v}.permute(0, 1, 3, 2).contiguous()", "{v}.flip(3)", "{v}[:1]",
         "{v}.flatten(1).view(-1, {c}, {h}, {w})", "{v}.reshape(-1, {c2}, {h}, {w})",
         "{v}.permute(0, 2, 3, 1).flatten(1, 2).transpose(1, 2).reshape(-1, {c}, {h}, {w})",
         "{v}.reshape({v}.shape[0] * 2, {c2}, {h}, {w})", "torch.cat([{v}, {v}.flip(2)])",
         "{v}.reshape({v}.shape[0], {c}, {h2}, 2, {w2}, 2).permute(0, 3, 5, 1, 2, 4)"
         ".reshape(-1, {c}, {h2}, {w2})",
         "{v}.reshape(-1, 2, 2, {c}, {h}, {w}).permute(0, 3, 4, 1, 5, 2)"
         ".reshape(-1, {c}, 2 * {h}, 2 * {w})",
         "{v}.reshape(-1, 4, {c}, {h}, {w}).mean(1)",
         "{v}[: {v}.shape[0] // 2] + {v}[{v}.shape[0] // 2 :]",
         "{v}.reshape({v}.shape[0] // 2, 2 * {c}, {h}, {w})"]),
    (1, ["F.pad({v}, (1, 0, 0, 1))", "F.interpolate({v}, size=({h2} + 2, 6))",
         "F.interpolate({v}, scale_factor=2)",
         "F.interpolate({v}, scale_factor=2, mode='bilinear')"]),
    (1, ["{v}.mean((2, 3))", "{v}.flatten(1)", "{v}.reshape(-1, {c} * {h} * {w})",
         "{v}.flatten(2).amax(2)"]),
]  # fmt: skip
VECTORS = [(6, ["<nn.Linear({c}, {f}, bias={flag})>({v})"])]
BOTH = [
    (4, ["<nn.ReLU()>({v})", "<nn.SiLU()>({v})", "<nn.GELU()>({v})", "<nn.LeakyReLU(0.1)>({v})",
         "<nn.Tanh()>({v})", "<nn.Hardswish()>({v})", "F.relu({v})", "torch.relu({v})",
         "F.gelu({v})", "torch.sigmoid({v})", "F.leaky_relu({v})", "{v}.relu()", "{v}.tanh()",
         "{v}.clamp(-1, 1)", "{v}.abs()", "-{v}"]),
    (3, ["<nn.ReLU(inplace=True)>({v})", "<nn.LeakyReLU(0.2, inplace=True)>({v})", "{v}.relu_()",
         "F.relu({v}, inplace=True)", "torch.relu_({v})", "{v}.clamp_(-0.5, 0.8)", "{v}.mul_(0.5)",
         "{v}.add_(1)", "{v}.neg_()"]),
    (5, ["{v} + {b}"] * 4 + ["{b} + {v}", "torch.add({v}, {b})", "{v}.add({b})", "{v} - {b}",
         "torch.add({v}, {b}, alpha=0.5)", "{v} * torch.sigmoid({b})", "{v} * {b}",
         "torch.maximum({v}, {b})"]),
    (2, ["{v} += {b}", "{v}.add_({b})", "{v} -= {b}", "{v} *= {b}"]),
    (2, ["{v} + 0.5", "2 * {v}", "{v} + {v}.shape[1]", "{v}.size(-1) + {v}", "{v} / {v}.shape[1]",
         "1 - {v}", "torch.add({v}, 3)"]),
    # These give back what they got: the same memory.
    (1, ["<nn.Identity()>({v})", "<nn.Dropout(0.0)>({v})", "<nn.Dropout(0.4)>({v})", "{v}"]),
]  # fmt: skip


class Program:
    """The source of a network.

    Attributes:
        shape: The shape of a sample of its input.
        layers: The lines that make its layers.
        lines: The lines of its forward pass.
    """

    def __init__(self, shape):
        self.shape = shape
        self.layers: list[str] = []
        self.lines: list[str] = []

    def __repr__(self):
        indented = [
            "class Network(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in self.layers),
            "",
            f"    def forward(self, x):  # {(_SAMPLES, *self.shape)}",
            *(f"        {line}" for line in self.lines),
        ]
        return "\n" + "\n".join(indented) + "\n"

    def build(self):
        """Makes the network, the same each time."""
        names = dict(_NAMES)
        exec(repr(self), names)
        torch.manual_seed(zlib.crc32(repr(self).encode()))
        return lived_in(names["Network"](), lambda samples: self.draw(samples, 9))

    def draw(self, samples, seed):
        """Makes arguments for its forward pass."""
        generator = Generator().manual_seed(1000 * seed + samples)
        return (torch.randn(samples, *self.shape, generator=generator),)

    @property
    def random(self):
        """Whether it does something else each time in training."""
        return "Dropout(0.4)" in repr(self)

    @cached_property
    def trains(self):
        """Whether PyTorch can train it: no line overwrites what a backward pass needs."""
        network = self.build()
        try:
            outputs = network(*self.draw(_SAMPLES, 0))
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            sum(each.sum() for each in outputs).backward()
        except RuntimeError as error:
            if re.search("in-?place", str(error)) is None:
                raise
            return False
        return True


class Writer:
    """Writes a program, and runs its lines for some samples."""

    def __init__(self, draw, shape):
        self.draw = draw
        self.program = Program(shape)
        self.network = nn.Module()
        self.values = {"x": torch.zeros(_SAMPLES, *shape)}
        self.read: set[str] = set()

    def pick(self, *choices):
        return self.draw(st.sampled_from(choices))

    def value(self, fits=lambda tensor: True):
        """Draws a value to read, the more likely if nobody has read it yet."""
        fitting = [name for name, tensor in self.values.items() if fits(tensor)]
        unread = [name for name in fitting if name not in self.read][-3:]
        name = self.pick(*(unread if unread and self.draw(st.integers(0, 2)) else fitting[-8:]))
        self.read.add(name)
        return name

    def number(self, key, name):
        """What stands in a form for a value."""
        tensor = self.values[name]
        c, h, w = (*tensor.shape[1:], 1, 1)[:3]
        fixed = {"v": name, "c": c, "h": h, "w": w, "c2": c // 2, "h2": h // 2, "w2": w // 2}
        shared = [
            f"self.{path}" for path, layer in self.network.named_children()
            if isinstance(layer, nn.Conv2d) and layer.in_channels == c
        ]  # fmt: skip
        draws = {
            "b": lambda: self.value(partial(_adds_up, tensor)),
            "m": lambda: self.value(partial(_joins, tensor)),
            "shared": lambda: self.pick(*shared or ["self.none"]),
            # Of fewer than four weights a sparse layer might keep none.
            "o": lambda: self.draw(st.integers(1 if c > 3 else 4, 8)),
            "k": lambda: self.pick(1, 2, 3, 3, 3, 4, 5),
            "s": lambda: self.pick(1, 1, 1, 1, 1, 2, 3),
            "p": lambda: self.pick(0, 1, 1, 1, 2),
            "d": lambda: self.pick(1, 1, 1, 2),
            "g": lambda: gcd(c, self.pick(1, 1, 1, 1, 2, c)),
            "f": lambda: self.draw(st.integers(4, 10)),
            "flag": lambda: self.draw(st.booleans()),
            "part": lambda: self.draw(st.integers(1, max(1, c - 1))),
            "axis": lambda: self.pick("1", "dim=1", "-3"),
            "i": lambda: self.pick(0, 1),
            "pool": lambda: f"{self.pick(2, 3)}, {self.pick(1, 1, 2)}, {self.pick(0, 1, 1)}",
        }
        return fixed[key] if key in fixed else draws[key]()

    def write(self, groups, name):
        """Writes a line that does something to a value, if it can be done; tells whether."""
        forms = self.pick(*(forms for weight, forms in groups for _ in range(weight)))
        form = self.pick(*forms)
        given = {key: self.number(key, name) for key in dict.fromkeys(re.findall(r"{(\w+)}", form))}
        first = len(self.program.layers)
        parts = form.format(**given)
        layers = re.findall("<(.*?)>", parts)
        for place, layer in enumerate(layers, start=first):
            parts = parts.replace(f"<{layer}>", f"self.m{place}", 1)
        in_place = re.search(r"_\(|= |inplace", form)
        is_statement = "= " in form or (in_place and self.draw(st.booleans()))
        new = name if is_statement else f"v{len(self.values)}"
        line = parts if is_statement else f"{new} = {parts}"
        values, other = dict(self.values), self.values[given.get("b", name)]
        tensor = self.values[name]
        # Writing to what is read at the same time, elsewhere, is no valid PyTorch.
        if in_place and other is not tensor and torch._C._is_alias_of(tensor, other):
            return False
        try:
            for place, layer in enumerate(layers, start=first):
                exec(f"self.m{place} = {layer}", _NAMES | {"self": self.network})
            with torch.no_grad():
                exec(line, _NAMES | {"self": self.network}, values)
        except (RuntimeError, ValueError, IndexError, AttributeError):
            found = None
        else:
            found = values[new]
        if found is None or not _is_usual(found) or ("Norm" in form and tensor[0, 0].numel() < 4):
            for place in range(first, first + len(layers)):
                self.network._modules.pop(f"m{place}", None)
                self.network._parameters.pop(f"m{place}", None)
            return False
        self.values = values
        self.program.layers += [
            f"self.m{place} = {layer}" for place, layer in enumerate(layers, start=first)
        ]
        self.program.lines.append(f"{line}  # {tuple(found.shape)}")
        return True


def _adds_up(one, other):
    """Whether two tensors can be added."""
    return one.dim() == other.dim() and all(
        m == n or 1 in (m, n) for m, n in zip(one.shape, other.shape, strict=True)
    )


def _joins(one, other):
    """Whether maps are as many, and as large, as others."""
    return one.dim() == other.dim() and all(one.shape[i] == other.shape[i] for i in (0, 2, 3))


def _is_usual(found):
    """Whether a tensor is what there is for any number of samples, and not too large."""
    samples, *shape = found.shape
    is_small = len(shape) == 1 or all(map(int.__le__, found.shape, _MOST))
    return (samples % _SAMPLES == 0 or samples == 1) and found.numel() > 0 and is_small


@st.composite
def programs(draw, most=14):
    """Programs of up to so many operations, and one or two outputs."""
    shape = (3, draw(st.integers(5, 10)), draw(st.integers(5, 10)))
    w = Writer(draw, shape)
    first = [(1, ["<nn.Conv2d({c}, 8, 3, padding=1)>({v})"])]
    last = [(1, ["<nn.Conv2d({c}, {o}, 1)>({v})"])]
    assert w.write(first, "x")
    for _ in range(draw(st.integers(2, most))):
        name = w.value()
        w.write((MAPS if w.values[name].dim() == 4 else VECTORS) + BOTH, name)
    # Whatever it was, it ends in a layer, so there is something to train.
    name = [*w.values][-1]
    assert w.write(last if w.values[name].dim() == 4 else VECTORS, name)
    outputs = [[*w.values][-1]]
    if draw(st.booleans()):
        outputs.append(w.value())
    w.program.lines.append(f"return {', '.join(outputs)}")
    return w.program
