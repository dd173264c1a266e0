"""How a network of the zoo is registered, and how it gets the look of one that was trained."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Generator, nn

Draw = Callable[[int, Generator], Any]
Make = Callable[[], Any]


@dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    Attributes:
        name: Its name, unique.
        kind: What it is an example of.
        build: Makes it.
        inputs: Makes the arguments of its forward pass, for so many samples.
        random: In training it computes something else each time (dropout), so only its
            predictions can be compared.
        trains: Whether PyTorch can train it (it can't where a map that the backward pass needs is
            overwritten).
        least: The fewest samples that it can be trained with.
    """

    name: str
    kind: str
    build: Callable[[], nn.Module]
    inputs: Callable[[int, Generator], tuple[Any, ...]]
    random: bool = False
    trains: bool = True
    least: int = 1

    @property
    def seed(self):
        """A number of its own: one more network in the zoo changes nothing for the others."""
        return zlib.crc32(self.name.encode())

    def draw(self, samples, seed=0):
        """Returns arguments for its forward pass."""
        return self.inputs(samples, torch.Generator().manual_seed(1000 * seed + samples))


ZOO: dict[str, Entry] = {}


def member(kind, *inputs, of=None, **options):
    """Registers the class or function below as a network of the zoo.

    Args:
        kind: What it is an example of.
        *inputs: For each argument of the forward pass the shape of a sample, or a function.
        of: The network's layers by name, and how they are made: what is below is its forward pass.
        **options: See `Entry`.
    """
    draws = [each if callable(each) else normal(*each) for each in inputs]

    def register(function):
        name = f"{kind}: {function.__name__}"
        assert name not in ZOO
        build = function
        if of is not None:
            kind_of_module = type(function.__name__, (nn.Module,), {"forward": function})
            build = partial(network, kind_of_module, of)
        ZOO[name] = Entry(
            name, kind, build, lambda n, g: tuple(draw(n, g) for draw in draws), **options
        )
        return function

    return register


def network(kind, layers):
    """A module of this class, with these layers."""
    found = kind()
    for name, make in layers.items():
        setattr(found, name, make())
    return found


def normal(*shape):
    """Samples of this shape."""
    return lambda samples, generator: torch.randn(samples, *shape, generator=generator)


def integers(below, *shape):
    """Samples of whole numbers."""
    return lambda samples, generator: torch.randint(below, (samples, *shape), generator=generator)


def always(value):
    """An argument that has nothing to do with samples."""
    return lambda samples, generator: value


def lived_in(network, inputs):
    """Gives norms weights, and BatchNorms statistics, as after a training."""
    with torch.no_grad():
        for module in network.modules():
            if hasattr(module, "eps"):  # all norms, whatever they are called
                for parameter in module.parameters(recurse=False):
                    nn.init.normal_(parameter, 0.3)
        training = network.training
        network.train()
        for samples in (5, 6, 7):
            network(*inputs(samples))
        network.train(training)
    return network


# ---- layers


def conv(inputs=8, outputs=8, kernel=3, **options):
    """A convolution that leaves the size of maps as it is."""
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, **options)


def unit(inputs=8, outputs=8, kernel=3, **options):
    """A convolution, BatchNorm and ReLU."""
    first = conv(inputs, outputs, kernel, bias=False, **options)
    return nn.Sequential(first, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def layers(convs, /, **others):
    """Convolutions, the first of 3 channels, all others of 8; other layers; `fc` for 5 classes."""
    names = convs.split()
    found = {name: conv if place else partial(conv, 3) for place, name in enumerate(names)}
    return {**found, "fc": partial(nn.Linear, 8, 5), **others}


def several(*made):
    """How a list of layers is made."""
    return lambda: nn.ModuleList(make() for make in made)


def parameter(*shape):
    """How a parameter is made."""
    return lambda: nn.Parameter(torch.randn(shape))


norm = partial(nn.BatchNorm2d, 8)
one_by_one = partial(conv, kernel=1)
