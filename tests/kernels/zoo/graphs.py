"""Random networks: programs that are drawn line by line, valid by construction.

Since a program is the source of a class, one that fails can be read, copied and run.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, product
from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Generator, nn

from .entry import lived_in

_MOST_CHANNELS, _LARGEST_MAP, _MOST_SAMPLES = 16, 14, 8


class Program:
    """The source of a network.

    Attributes:
        shape: The shape of a sample of its input.
        layers: The lines that make its layers.
        lines: The lines of its forward pass.
        trains: Whether PyTorch can train it: no line overwrites what a backward pass needs.
        random: Whether it does something else each time in training.
    """

    def __init__(self, shape):
        self.shape = shape
        self.layers: list[str] = []
        self.lines: list[str] = []
        self.trains, self.random = True, False

    def __repr__(self):
        indented = [
            "class Network(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in self.layers),
            "",
            f"    def forward(self, x):  # {Value('x', (1, *self.shape), 0)}",
            *(f"        {line}" for line in self.lines),
        ]
        return "\n" + "\n".join(indented) + "\n"

    def build(self):
        """Makes the network, the same each time."""
        names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F}
        exec(repr(self), names)
        torch.manual_seed(zlib.crc32(repr(self).encode()))
        return lived_in(names["Network"](), lambda samples: self.draw(samples, 9))

    def draw(self, samples, seed):
        """Makes arguments for its forward pass."""
        generator = Generator().manual_seed(1000 * seed + samples)
        return (torch.randn(samples, *self.shape, generator=generator),)


@dataclass(frozen=True)
class Value:
    """A tensor in a program.

    Attributes:
        name: Its name.
        size: How many samples it has for each one that the network gets (0: one in all), and the
            shape of a sample: (channels, height, width), or (features,).
        base: The memory that it is a view of: what has the same base may overlap.
    """

    name: str
    size: tuple[int, ...]
    base: int

    @property
    def is_map(self):
        return len(self.size) == 4

    def __str__(self):
        samples = {0: "1", 1: "N"}.get(self.size[0], f"{self.size[0]}N")
        return f"({', '.join([samples, *map(str, self.size[1:])])})"


def together(a, b):
    """The size of a sum; None if there is none."""
    if len(a.size) != len(b.size):
        return None
    # Of a sample there may be one in all, of anything else one, which is there for each.
    alone = (0, *(1,) * (len(a.size) - 1))
    if any(m != n and one not in (m, n) for m, n, one in zip(a.size, b.size, alone, strict=True)):
        return None
    return tuple(map(max, a.size, b.size))


class Writer:
    """Writes a program, and keeps account of what its values are."""

    def __init__(self, draw, shape):
        self.draw = draw
        self.program = Program(shape)
        self.values = [Value("x", (1, *shape), 0)]
        self.read: set[str] = set()
        self.saved: set[int] = set()  # bases that a backward pass will read
        self.shared: list[tuple[str, dict[str, Any]]] = []  # convolutions, with their settings

    def pick(self, choices):
        return self.draw(st.sampled_from(list(choices)))

    def flag(self):
        return self.draw(st.booleans())

    def value(self, choices=None):
        """Draws a value to read, the more likely if nobody has read it yet."""
        choices = self.values if choices is None else choices
        unread = [value for value in choices if value.name not in self.read]
        value = self.pick(unread[-3:] if unread and self.draw(st.integers(0, 2)) else choices[-8:])
        self.read.add(value.name)
        return value

    def layer(self, text):
        """Adds a layer or a parameter; returns its name."""
        name = f"self.m{len(self.program.layers)}"
        self.program.layers.append(f"{name} = {text}")
        return name

    def filled(self, form, v):
        """A form that is a layer to be applied to a value, or has @ in its place."""
        if form.startswith("nn."):
            return f"{self.layer(form)}({v.name})"
        return form.replace("@", v.name)

    def new(self, text, size, *, like=None):
        """Writes a line that gives a new value, which may be a view of `like`."""
        base = len(self.program.lines) + 1 if like is None else like.base
        value = Value(f"v{len(self.values)}", tuple(size), base)
        self.values.append(value)
        self.program.lines.append(f"{value.name} = {text}  # {value}")
        return value

    def save(self, *values):
        """Notes that a backward pass will read these."""
        self.saved |= {value.base for value in values}

    def write(self, text, value, *, named=False):
        """Writes a line that overwrites a value, or a part of it, and may give it one more name."""
        if value.base in self.saved:
            self.program.trains = False
        if named:
            self.new(text, value.size, like=value)
        else:
            self.program.lines.append(text)

    def partners(self, value):
        """The values that can be added to a value: the result has the shape of the larger."""
        return [other for other in self.values if together(value, other) is not None]


# An operation can be applied to some values, and writes some lines.
_OPERATIONS: list[tuple[int, Callable[[Value], Any], Callable[[Writer, Value], Any]]] = []


def operation(weight=1, applies=lambda v: v.is_map):
    """Registers an operation, to be drawn so often where it applies."""

    def register(function):
        _OPERATIONS.append((weight, applies, function))
        return function

    return register


def forms(weight=1, *, saves="", vectors=False):
    """Registers an operation by its forms for a size, each with the size of what it makes.

    A third entry says that this is a view. Of others, a backward pass reads what they get or what
    they make, if `saves` has these words.
    """

    def register(rows):
        def applies(v):
            return (vectors or v.is_map) and rows(*v.size)

        def write(w, v):
            form, size, *is_view = w.pick(rows(*v.size))
            w.program.random |= "Dropout(0.4)" in form
            result = w.new(w.filled(form, v), size, like=v if is_view else None)
            if not is_view:
                w.save(*(value for word, value in (("got", v), ("made", result)) if word in saves))

        _OPERATIONS.append((weight, applies, write))
        return rows

    return register


def same(size, *texts):
    """Forms that leave the size."""
    return [(text, size) for text in texts]


def _out(size, kernel, stride, padding, dilation=1):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@operation(6)
def convolve(w, v):
    n, c, h, wide = v.size
    reach = min(h, wide)
    fitting = [
        (name, s)
        for name, s in w.shared
        if s["inputs"] == c and reach + 2 * s["padding"] > s["dilation"] * (s["kernel"] - 1)
    ]
    if fitting and w.draw(st.integers(0, 3)) == 0:
        name, s = w.pick(fitting)
    else:
        padding, dilation = w.pick([0, 1, 1, 1, 2]), w.pick([1, 1, 1, 2])
        most = min(5, (reach + 2 * padding - 1) // dilation + 1)
        kernel = w.pick([size for size in (1, 2, 3, 3, 3, 4, 5) if size <= most])
        stride, groups = w.pick([1, 1, 1, 1, 1, 2, 3]), gcd(c, w.pick([1, 1, 1, 1, 2, c]))
        # Of fewer than four weights a sparse layer might keep none.
        outputs = groups * w.draw(st.integers(1 if c > 3 else 4, 8))
        outputs = min(outputs, max(groups, 4, _MOST_CHANNELS // groups * groups))
        s = {"inputs": c, "outputs": outputs, "kernel": kernel, "stride": stride,
             "padding": padding, "dilation": dilation}  # fmt: skip
        options = f"dilation={dilation}, groups={groups}, bias={w.flag()}"
        name = w.layer(f"nn.Conv2d({c}, {outputs}, {kernel}, {stride}, {padding}, {options})")
        w.shared.append((name, s))
    sizes = (_out(m, s["kernel"], s["stride"], s["padding"], s["dilation"]) for m in (h, wide))
    w.save(v)
    w.new(f"{name}({v.name})", (n, s["outputs"], *sizes))


@forms(3, saves="got")
def normalize(n, c, h, wide):
    if h * wide < 4:  # a BatchNorm of two values makes -1 and 1 of them, and has no gradient
        return []
    kinds = [f"nn.BatchNorm2d({c})"] * 3 + [
        f"nn.BatchNorm2d({c}, affine=False)", f"nn.BatchNorm2d({c}, track_running_stats=False)",
        f"nn.BatchNorm2d({c}, eps=0.1, momentum=None)", f"nn.GroupNorm(1, {c})",
    ]  # fmt: skip
    return same((n, c, h, wide), *kinds)


@forms(4, saves="got, made", vectors=True)
def activate(*size):
    return same(
        size, "nn.ReLU()", "nn.SiLU()", "nn.GELU()", "nn.LeakyReLU(0.1)", "nn.Tanh()",
        "nn.Hardswish()", "F.relu(@)", "torch.relu(@)", "F.gelu(@)", "torch.sigmoid(@)",
        "F.leaky_relu(@)", "@.relu()", "@.tanh()", "@.clamp(-1, 1)", "@.abs()", "-@",
    )  # fmt: skip


@operation(3, lambda v: True)
def activate_in_place(w, v):
    form = w.pick([
        "nn.ReLU(inplace=True)", "nn.LeakyReLU(0.2, inplace=True)", "F.relu(@, inplace=True)",
        "@.relu_()", "torch.relu_(@)", "@.clamp_(-0.5, 0.8)", "@.mul_(0.5)", "@.add_(1)",
        "@.neg_()",
    ])  # fmt: skip
    w.write(w.filled(form, v), v, named=w.flag())
    if "relu" in form.lower():
        w.save(v)


@operation(applies=lambda v: v.is_map and v.size[1] > 1)
def write_to_a_part(w, v):
    _, c, h, _ = v.size
    k = w.draw(st.integers(1, c - 1))
    part = w.pick([f"[:, :{k}]", f"[:, {k}:]", f".narrow(1, 0, {k})", f"[:, :, :{max(1, h // 2)}]"])
    w.write(f"{v.name}{part}{w.pick(['.mul_(2)', '.zero_()', '.add_(0.5)', '.neg_()'])}", v)


@operation(5, lambda v: True)
def combine(w, v):
    other = w.value(w.partners(v))
    form = w.pick(
        ["{a} + {b}"] * 4 + ["{b} + {a}", "torch.add({a}, {b})", "{a}.add({b})", "{a} - {b}",
         "torch.add({a}, {b}, alpha=0.5)", "{a} * torch.sigmoid({b})", "{a} * {b}",
         "torch.maximum({a}, {b})"]
    )  # fmt: skip
    if not any(sign in form for sign in ("+", "add", "-")):
        w.save(v, other)
    w.new(form.format(a=v.name, b=other.name), together(v, other))


@operation(2, lambda v: True)
def combine_in_place(w, v):
    fitting = [
        other
        for other in w.partners(v)
        # Writing to what is read at the same time, elsewhere, is no valid PyTorch.
        if together(v, other) == v.size and (other.base != v.base or other == v)
    ]
    other = w.value(fitting)
    form = w.pick(["{a} += {b}", "{a} += {b}", "{a}.add_({b})", "{a} -= {b}", "{a} *= {b}"])
    if "*" in form:
        w.save(other)
    w.write(form.format(a=v.name, b=other.name), v)


@operation(2)
def combine_with_parameter(w, v):
    _, c, h, wide = v.size
    shape = w.pick([(1, c, 1, 1), (1, c, h, wide), (c, 1, 1), (1, 1, h, wide), (1,), (), (wide,)])
    name = w.layer(f"nn.Parameter(torch.randn({shape}))")
    form = w.pick(["{a} + {p}", "{p} + {a}", "{a} * {p}", "torch.add({a}, {p})"])
    if "*" in form:
        w.save(v)
    w.new(form.format(a=v.name, p=name), v.size)


@operation()
def add_layer_of_parameter(w, v):
    """A batch of one that comes from a parameter, by way of a convolution."""
    _, c, h, wide = v.size
    template = w.layer(f"nn.Parameter(torch.randn(1, 2, {h}, {wide}))")
    w.new(f"{w.layer(f'nn.Conv2d(2, {c}, 3, padding=1)')}({template})", (0, c, h, wide))


@forms(2, vectors=True)
def combine_with_number(*size):
    return same(size, "@ + 0.5", "2 * @", "@ + @.shape[1]", "@.size(-1) + @", "@ / @.shape[1]",
                "1 - @", "torch.add(@, 3)")  # fmt: skip


@operation(2)
def concatenate(w, v):
    n, c, h, wide = v.size
    fitting = [o for o in w.values if o.is_map and (o.size[0], *o.size[2:]) == (n, h, wide)]
    parts = [v, *(w.value(fitting) for _ in range(w.pick([1, 1, 2])))]
    channels = sum(part.size[1] for part in parts)
    names = ", ".join(part.name for part in parts)
    if channels <= _MOST_CHANNELS:
        w.new(f"torch.cat([{names}], {w.pick(['1', 'dim=1', '-3'])})", (n, channels, h, wide))
    else:
        w.new(f"torch.cat(({v.name}, {v.name}.flip(2)[:, :, :1]), 2)", (n, c, h + 1, wide))


@operation(applies=lambda v: v.is_map and v.size[1] % 2 == 0)
def split(w, v):
    n, c, *rest = v.size
    form = w.pick(["@.chunk(2, dim=1)", f"torch.split(@, {c // 2}, 1)"])
    for i in (0, 1):
        w.new(f"{w.filled(form, v)}[{i}]", (n, c // 2, *rest), like=v)
    w.save(v)  # to write to one of several views is forbidden where there are gradients


@forms()
def cut(n, c, h, wide):
    half, less = (c + 1) // 2, max(1, wide - 1)
    return [
        (f"@[:, :{half}]", (n, half, h, wide), True),
        ("@[:, ::2]", (n, half, h, wide), True),
        ("@[:, :, ::2, ::2]", (n, c, (h + 1) // 2, (wide + 1) // 2), True),
        (f"@[..., :{less}]", (n, c, h, less), True),
    ]


@forms(2, saves="got")
def pool(n, c, h, wide):
    if min(h, wide) < 3:
        return [("F.adaptive_max_pool2d(@, (2, 1))", (n, c, 2, 1))]
    rows = [
        ("nn.AdaptiveAvgPool2d((3, 2))", (n, c, 3, 2)),
        ("nn.AdaptiveMaxPool2d(2)", (n, c, 2, 2)),
        ("F.max_pool2d(@, 2, return_indices=True)[0]", (n, c, h // 2, wide // 2)),
    ] * 10
    for settings in product((2, 3), (1, 1, 2), (0, 1, 1)):
        size, told = (n, c, _out(h, *settings), _out(wide, *settings)), str(settings)[1:-1]
        rows += same(size, f"nn.MaxPool2d({told})", f"nn.AvgPool2d({told})",
                     f"nn.AvgPool2d({told}, count_include_pad=False)",
                     f"F.max_pool2d(@, {told})", f"F.avg_pool2d(@, {told})")  # fmt: skip
    return rows


@forms(saves="got, made")
def reduce(n, c, h, wide):
    return [
        ("@.mean((2, 3), keepdim=True)", (n, c, 1, 1)),
        ("@.mean(1, keepdim=True)", (n, 1, h, wide)),
        ("@.amax((2, 3), True)", (n, c, 1, 1)),
        ("torch.mean(@, dim=0, keepdim=True)", (0, c, h, wide)),
        ("F.adaptive_avg_pool2d(@, 1)", (n, c, 1, 1)),
    ]


@forms(2)
def rearrange(n, c, h, wide):
    """Samples, channels and places change their roles."""
    rows: list[tuple[Any, ...]] = [
        ("@.transpose(2, 3)", (n, c, wide, h), True),
        ("@.permute(0, 1, 3, 2).contiguous()", (n, c, wide, h), True),
        (f"@.flatten(1).view(-1, {c}, {h}, {wide})", (n, c, h, wide), True),
        (f"@.permute(0, 2, 3, 1).reshape(-1, {h * wide}, {c}).transpose(1, 2)"
         f".reshape(-1, {c}, {h}, {wide})", (n, c, h, wide), True),
        ("@.flip(3)", (n, c, h, wide)),
    ]  # fmt: skip
    more = 0 < n <= _MOST_SAMPLES // 2
    if more and c % 2 == 0:
        for first in ("-1", "@.shape[0] * 2"):
            halves = (2 * n, c // 2, h, wide)
            rows.append((f"@.reshape({first}, {c // 2}, {h}, {wide})", halves, True))
    if more:
        rows.append(("torch.cat([@, @.flip(2)])", (2 * n, c, h, wide)))
    if 0 < n <= _MOST_SAMPLES // 4 and h % 2 == 0 and wide % 2 == 0:
        patches = (
            f"@.reshape(@.shape[0], {c}, {h // 2}, 2, {wide // 2}, 2)"
            f".permute(0, 3, 5, 1, 2, 4).reshape(-1, {c}, {h // 2}, {wide // 2})"
        )
        rows += [(patches, (4 * n, c, h // 2, wide // 2), True)] * 2
    if n and n % 4 == 0:
        back = (
            f"@.reshape(-1, 2, 2, {c}, {h}, {wide}).permute(0, 3, 4, 1, 5, 2)"
            f".reshape(-1, {c}, {2 * h}, {2 * wide})"
        )
        if 2 * max(h, wide) <= _LARGEST_MAP:
            rows += [(back, (n // 4, c, 2 * h, 2 * wide), True)] * 2
        rows.append((f"@.reshape(-1, 4, {c}, {h}, {wide}).mean(1)", (n // 4, c, h, wide)))
    if n and n % 2 == 0:
        rows.append(("@[: @.shape[0] // 2] + @[@.shape[0] // 2 :]", (n // 2, c, h, wide)))
        if 2 * c <= _MOST_CHANNELS:
            joined = f"@.reshape(@.shape[0] // 2, {2 * c}, {h}, {wide})"
            rows.append((joined, (n // 2, 2 * c, h, wide), True))
    if n:
        rows.append(("@[:1]", (0, c, h, wide), True))
    return rows


@forms(saves="got")
def enlarge(n, c, h, wide):
    high = min(h + 2, 8)
    rows = [
        ("F.pad(@, (1, 0, 0, 1))", (n, c, h + 1, wide + 1)),
        (f"F.interpolate(@, size=({high}, 6))", (n, c, high, 6)),
    ]
    if 2 * max(h, wide) <= _LARGEST_MAP:
        rows += same((n, c, 2 * h, 2 * wide), "F.interpolate(@, scale_factor=2)",
                     "F.interpolate(@, scale_factor=2, mode='bilinear')")  # fmt: skip
    return rows


@forms(vectors=True)
def do_nothing(*size):
    """Dropout and Identity give back what they got: the same memory."""
    texts = ["nn.Identity()", "nn.Dropout(0.0)", "nn.Dropout(0.4)", "@", "nn.Dropout2d(0.0)"]
    return [(text, size, True) for text in texts[: 5 if len(size) == 4 else 4]]


@forms(saves="got, made")
def flatten(n, c, h, wide):
    return [
        ("@.mean((2, 3))", (n, c)),
        ("@.flatten(1)", (n, c * h * wide), True),
        (f"@.reshape(-1, {c * h * wide})", (n, c * h * wide), True),
        ("@.flatten(2).amax(2)", (n, c)),
    ]


@operation(6, lambda v: not v.is_map)
def project(w, v):
    outputs = w.draw(st.integers(4, 10))
    w.save(v)
    w.new(w.filled(f"nn.Linear({v.size[1]}, {outputs}, bias={w.flag()})", v), (v.size[0], outputs))


@st.composite
def programs(draw, most=14):
    """Programs of up to so many operations, and one or two outputs."""
    shape = (3, draw(st.integers(5, 10)), draw(st.integers(5, 10)))
    w = Writer(draw, shape)
    w.saved.add(0)
    w.new(w.filled("nn.Conv2d(3, 8, 3, padding=1)", w.values[0]), (1, 8, *shape[1:]))
    for _ in range(draw(st.integers(2, most))):
        value = w.value()
        fitting = ([write] * weight for weight, applies, write in _OPERATIONS if applies(value))
        w.pick(chain.from_iterable(fitting))(w, value)
    # Whatever it was, it ends in a layer, so there is something to train.
    (convolve if w.values[-1].is_map else project)(w, w.values[-1])
    outputs = [w.values[-1].name]
    if draw(st.booleans()):
        outputs.append(w.value().name)
    w.program.lines.append(f"return {', '.join(outputs)}")
    return w.program
