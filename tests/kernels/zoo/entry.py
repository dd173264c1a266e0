"""How a network of the zoo is written and registered, and gets the look of one that was trained."""

import inspect
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

IMAGE = (3, 8, 8)


@dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    Attributes:
        name: What it is an example of, and a name of its own.
        make: Makes it.
        inputs: For each argument of its forward pass the shape of a sample, or a function of
            samples and a generator, or the argument itself.
        random: In training it computes something else each time (dropout), so only its
            predictions can be compared.
        trains: Whether PyTorch can train it (it can't where a map that the backward pass needs is
            overwritten).
        least: The fewest samples that it can be trained with.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Any, ...]
    random: bool = False
    trains: bool = True
    least: int = 1

    def build(self):
        """Makes it as after some training, by a seed of its own: the same each time."""
        torch.manual_seed(zlib.crc32(self.name.encode()))
        return lived_in(self.make(), partial(self.draw, seed=9))

    def draw(self, samples, seed=0):
        """Returns arguments for its forward pass."""
        generator = torch.Generator().manual_seed(1000 * seed + samples)
        return tuple(
            torch.randn(samples, *each, generator=generator) if isinstance(each, tuple)
            else each(samples, generator) if callable(each) else each
            for each in self.inputs
        )  # fmt: skip


ZOO: dict[str, Entry] = {}


def member(name, *inputs, **options):
    """Registers the class or function below, which makes a network: see `Entry`."""

    def register(make):
        assert name not in ZOO
        ZOO[name] = Entry(name, make, inputs, **options)
        return make

    return register


def chain(name, shape, make, **options):
    """Registers a network whose layers follow one another."""
    member(name, shape, **options)(lambda: nn.Sequential(*make()))


class Sketch:
    """Networks of one kind, each written as one method: what it makes of its inputs.

    `self` is one pass through the network. Its layers are made where the first pass asks for them
    (`self.conv()` or, of PyTorch's own, `self.Linear(8, 5)`); later ones get them in this order.
    """

    image: tuple[int, ...] = IMAGE

    def __init_subclass__(cls, kind):
        for name, code in vars(cls).items():
            if inspect.isfunction(code) and not name.startswith("_"):
                inputs, options = getattr(code, "takes", ((), {}))
                inputs = inputs or (cls.image,)
                member(f"{kind}: {name}", *inputs, **options)(cls._network(code))

    @classmethod
    def _network(cls, code):
        @wraps(code)
        def forward(network, *inputs, **options):
            return code(cls(network), *inputs, **options)

        return type(code.__name__, (nn.Module,), {"forward": forward})

    def __init__(self, network):
        self._module, self._count = network, 0

    def __getattr__(self, name):
        return partial(self.layer, MAKERS[name] if name in MAKERS else getattr(nn, name))

    def layer(self, make, *arguments, **options):
        """The next layer, or parameter."""
        name = f"layer{self._count}"
        self._count += 1
        if not hasattr(self._module, name):
            setattr(self._module, name, make(*arguments, **options))
        return getattr(self._module, name)

    def fc(self, x):
        """Five classes of 8 maps."""
        return self.Linear(8, 5)(x.mean((2, 3)))

    def head(self, x):
        """The same after one more convolution."""
        return self.fc(F.relu(self.conv()(x)))


def takes(*inputs, **options):
    """What the method of a sketch takes, if not one image, and other settings of its `Entry`."""

    def mark(code):
        code.takes = inputs, options
        return code

    return mark


def lived_in(network, inputs):
    """Gives norms weights, and BatchNorms statistics, as after a training."""
    training = network.training
    network.train()
    with torch.no_grad():
        for samples in (4, 5, 6, 7):
            network(*inputs(samples))
            for module in network.modules():
                if samples == 4 and hasattr(module, "eps"):  # all norms, whatever they are called
                    for parameter in module.parameters(recurse=False):
                        nn.init.normal_(parameter, 0.3)
    return network.train(training)


# ---- layers


def conv(inputs=8, outputs=8, kernel=3, **options):
    """A convolution that leaves the size of maps as it is."""
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def unit(inputs=8, outputs=8, kernel=3, **options):
    """A convolution, BatchNorm and ReLU."""
    first = conv(inputs, outputs, kernel, bias=False, **options)
    return nn.Sequential(first, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def parameter(*shape):
    return nn.Parameter(torch.randn(shape))


norm = partial(nn.BatchNorm2d, 8)

MAKERS: dict[str, Callable[..., Any]] = {
    "conv": conv, "unit": unit, "norm": norm, "parameter": parameter,
    "point": partial(conv, kernel=1), "inplace": partial(nn.ReLU, inplace=True),
}  # fmt: skip
