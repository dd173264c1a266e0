"""How a network of the zoo is registered, and how it gets the look of one that was trained."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, nn

Draw = Callable[[int, Generator], Any]


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
    def seed(self) -> int:
        """A number of its own: one more network in the zoo changes nothing for the others."""
        return zlib.crc32(self.name.encode())

    def draw(self, samples: int, seed: int = 0) -> tuple[Any, ...]:
        """Returns arguments for its forward pass."""
        return self.inputs(samples, torch.Generator().manual_seed(1000 * seed + samples))


ZOO: dict[str, Entry] = {}


def member(
    kind: str,
    *inputs: tuple[int, ...] | Draw,
    random: bool = False,
    trains: bool = True,
    least: int = 1,
) -> Callable[[Callable[[], nn.Module]], Any]:
    """Registers the class or function below as a network of the zoo.

    Args:
        kind: What it is an example of.
        *inputs: For each argument of the forward pass the shape of a sample, or a function.
        random: See `Entry`.
        trains: See `Entry`.
        least: See `Entry`.
    """
    draws = [each if callable(each) else normal(*each) for each in inputs]

    def register(build: Any) -> Any:
        name = f"{kind}: {build.__name__}"
        assert name not in ZOO
        ZOO[name] = Entry(
            name, kind, build, lambda n, g: tuple(draw(n, g) for draw in draws),
            random, trains, least,
        )  # fmt: skip
        return build

    return register


def normal(*shape: int) -> Draw:
    """Samples of this shape."""
    return lambda samples, generator: torch.randn(samples, *shape, generator=generator)


def integers(below: int, *shape: int) -> Draw:
    """Samples of whole numbers."""
    return lambda samples, generator: torch.randint(below, (samples, *shape), generator=generator)


def always(value: Any) -> Draw:
    """An argument that has nothing to do with samples."""
    return lambda samples, generator: value


def lived_in(network: nn.Module, inputs: Callable[[int], tuple[Any, ...]]) -> nn.Module:
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
