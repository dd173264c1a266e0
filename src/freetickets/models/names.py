"""What the name of a model, a stem and numbers, means. No torch: names are checked first."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import FreeTicketsError, UnknownNameError
from ..registry import Registry

OWN = ("package.module:function", "your own: any function that returns an nn.Module")

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Architecture:
    """One family of networks.

    Attributes:
        pattern: How its names look, for people: `wrn-D-K`.
        description: One line about it.
        builder: The function that builds it, as `module:function`; it is imported when needed.
        smallest_image: The least height and width it takes; None if it takes inputs of any shape.
        rule: Turns the numbers of a name into the builder's arguments, or raises ValueError.
    """

    pattern: str
    description: str
    builder: str
    smallest_image: int | None
    rule: Callable[..., Arguments]

    @property
    def stem(self) -> str:
        """The fixed part of its names."""
        return re.split(r"-[A-Z0-9]", self.pattern)[0]

    def arguments(self, name: str, numbers: list[int]) -> Arguments:
        """Returns the builder's arguments that `numbers` stand for."""
        try:
            inspect.signature(self.rule).bind(*numbers)
        except TypeError:
            raise FreeTicketsError(f"model {name!r}: write it as {self.pattern}") from None
        if 0 in numbers:
            raise FreeTicketsError(f"model {name!r}: its numbers must be at least 1")
        try:
            return self.rule(*numbers)
        except ValueError as error:
            raise FreeTicketsError(f"model {name!r}: {error}") from None


# Factories of networks that users and installed packages have added, each under a whole name.
MODELS: Registry[Callable[..., Any]] = Registry("model", "models")


def _blocks(depth: int, outside: int) -> int:
    """Returns the blocks a stage in a network of three stages with `outside` layers around them."""
    blocks, rest = divmod(depth - outside, 6)
    if rest or blocks < 1:
        near = 6 * max(1, round((depth - outside) / 6)) + outside
        raise ValueError(f"its depth must be 6n + {outside}, not {depth}: the nearest is {near}")
    return blocks


def _stages(depth: int) -> Arguments:
    deep = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
    stages = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), **deep}
    if depth not in stages:
        raise ValueError(f"no depth {depth}: take one of {', '.join(map(str, stages))}")
    return {"blocks": stages[depth], "bottleneck": depth in deep}


# fmt: off
_RESNET, _SMALL, _FAST = (f"freetickets.models.{module}:" for module in ("resnet", "small", "fast"))
_ALL = (
    Architecture(
        "wrn-D-K", "Wide ResNet, pre-activation, of depth D = 6n + 4 and width K: wrn-28-10",
        _RESNET + "wide_resnet", 8,
        lambda depth, width: {"blocks": _blocks(depth, 4), "width": width},
    ),
    Architecture(
        "cifar-resnet-N", "ResNet for small images, of depth N = 6n + 2: cifar-resnet-20",
        _RESNET + "cifar_resnet", 8, lambda depth: {"blocks": _blocks(depth, 2)},
    ),
    Architecture(
        "resnet-18|34|50|101|152", "ResNet for ImageNet, v1.5 (stride on the 3x3): resnet-50",
        _RESNET + "resnet", 32, _stages,
    ),
    Architecture(
        "cnn-W", "small CNN, three convolutions of W, 2W and 4W channels; cnn alone is cnn-32",
        _SMALL + "cnn", 8, lambda width=32: {"width": width},
    ),
    Architecture(
        "fast-A-B-C",
        "learns small images in few epochs, three groups of A, B and C channels: fast-64-128-128",
        _FAST + "fast", 9, lambda first, second, third: {"widths": (first, second, third)},
    ),
    Architecture(
        "mlp-A-B-...", "fully connected, with hidden layers of A, B, ... units: mlp-300-100",
        _SMALL + "mlp", None, lambda first, *others: {"widths": (first, *others)},
    ),
)
# fmt: on
ARCHITECTURES = {entry.stem: entry for entry in _ALL}


def model_names() -> list[tuple[str, str]]:
    """Returns every pattern of names and what it builds, in one line each.

    Example:
        >>> dict(model_names())["mlp-A-B-..."]
        'fully connected, with hidden layers of A, B, ... units: mlp-300-100'
    """
    ours = [(entry.pattern, entry.description) for entry in ARCHITECTURES.values()]
    return [*ours, *((name, "registered") for name in MODELS), OWN]


def check_name(name: str) -> None:
    """Raises unless `name` is one that `create_model` can build.

    A user's own factory is checked for its form only: to import it could take seconds.

    Raises:
        UnknownNameError: No architecture has this name.
        FreeTicketsError: The name is understood, but its numbers make no network.

    Example:
        >>> check_name("wrn-27-10")
        Traceback (most recent call last):
        ...
        freetickets.errors.FreeTicketsError: model 'wrn-27-10': its depth must be 6n + 4, not 27: \
the nearest is 28
    """
    if name in MODELS:
        return
    if ":" not in name:
        parse(name)
    elif not all(part.isidentifier() for part in re.split("[.:]", name)) or name.count(":") > 1:
        raise FreeTicketsError(f"model {name!r}: write your own as {OWN[0]}")


def parse(name: str) -> tuple[Architecture, Arguments]:
    """Returns the architecture that `name` belongs to and its builder's arguments.

    Example:
        >>> entry, arguments = parse("wrn-28-10")
        >>> entry.stem, arguments
        ('wrn', {'blocks': 4, 'width': 10})
    """
    numbers = re.search(r"(-[0-9]+)*$", name)
    tail = numbers.group() if numbers else ""
    entry = ARCHITECTURES.get(name.removesuffix(tail))
    if entry is None:
        raise UnknownNameError("model", name, _nearest(name) or list(dict(model_names())))
    return entry, entry.arguments(name, [int(number) for number in tail.split("-")[1:]])


def _nearest(name: str) -> list[str]:
    """Returns the valid name that resembles `name` most, if any does."""
    # Each architecture with the user's own numbers: resnet18 is meant to be resnet-18.
    numbers = re.findall("[0-9]+", name)
    candidates = []
    for entry in ARCHITECTURES.values():
        try:
            entry.arguments(name, [int(number) for number in numbers])
        except FreeTicketsError:
            continue
        candidates.append("-".join([entry.stem, *numbers]))
    return difflib.get_close_matches(name, candidates, n=1)
