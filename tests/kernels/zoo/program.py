"""Programs: the source of a network, written line by line, with an account of all its values.

Since a program is the source of a class, one that fails can be read, copied and run.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Generator, nn

from .networks import lived_in

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass(frozen=True)
class Value:
    """A tensor in a program.

    Attributes:
        name: Its name.
        samples: How many samples it has for each one that the network gets; 0: one in all.
        shape: That of a sample: (channels, height, width), or (features,).
        base: The memory that it is a view of: what has the same base may overlap.
    """

    name: str
    samples: int
    shape: tuple[int, ...]
    base: int

    @property
    def is_map(self):
        return len(self.shape) == 3

    def __str__(self):
        samples = {0: "1", 1: "N"}.get(self.samples, f"{self.samples}N")
        return f"({samples}, {', '.join(map(str, self.shape))})"


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
            f"    def forward(self, x):  # {Value('x', 1, self.shape, 0)}",
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


class Writer:
    """Writes a program, and keeps account of what its values are."""

    def __init__(self, draw, shape):
        self.draw = draw
        self.program = Program(shape)
        self.values = [Value("x", 1, shape, 0)]
        self.read: set[str] = set()
        self.saved: set[int] = set()  # bases that a backward pass will read
        self.shared: list[tuple[str, dict[str, Any]]] = []  # convolutions, with their settings

    def pick(self, choices):
        return self.draw(st.sampled_from(list(choices)))

    def value(self, choices=None):
        """Draws a value to read, the more likely if nobody has read it yet."""
        choices = self.values if choices is None else choices
        unread = [value for value in choices if value.name not in self.read]
        value = self.pick(unread[-3:] if unread and self.draw(st.integers(0, 2)) else choices[-8:])
        self.read.add(value.name)
        return value

    def flag(self):
        return self.draw(st.booleans())

    def layer(self, text):
        """Adds a layer or a parameter; returns its name."""
        name = f"self.m{len(self.program.layers)}"
        self.program.layers.append(f"{name} = {text}")
        return name

    def new(self, text, samples, shape, *, like=None):
        """Writes a line that gives a new value, which may be a view of `like`."""
        base = len(self.program.lines) + 1 if like is None else like.base
        value = Value(f"v{len(self.values)}", samples, tuple(shape), base)
        self.values.append(value)
        self.program.lines.append(f"{value.name} = {text}  # {value}")
        return value

    def same(self, text, like):
        """Writes a line that gives a new value of the same shape."""
        return self.new(text, like.samples, like.shape)

    def save(self, *values):
        """Notes that a backward pass will read these."""
        self.saved |= {value.base for value in values}

    def write(self, text, value, *, named=False):
        """Writes a line that overwrites a value, or a part of it, and may give it one more name."""
        if value.base in self.saved:
            self.program.trains = False
        if named:
            self.new(text, value.samples, value.shape, like=value)
        else:
            self.program.lines.append(text)

    def partners(self, value):
        """The values that can be added to a value: the result has the shape of the larger."""
        return [other for other in self.values if together(value, other) is not None]


def together(a, b):
    """The samples and the shape of a sum; None if there is none."""
    if len(a.shape) != len(b.shape) or (a.samples != b.samples and 0 not in (a.samples, b.samples)):
        return None
    if any(m != n and 1 not in (m, n) for m, n in zip(a.shape, b.shape, strict=True)):
        return None
    return max(a.samples, b.samples), tuple(map(max, a.shape, b.shape))
