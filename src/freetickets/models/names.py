"""What the name of a model, a stem and numbers, means, and the network that it builds.

No torch here but in `create_model`: names are listed and checked without waiting for it.
"""

import difflib
import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import FreeTicketsError, UnknownNameError
from ..registry import Registry, import_reference

if TYPE_CHECKING:
    from torch import Tensor, nn

OWN = ("package.module:function", "your own: any function that returns an nn.Module")

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Architecture:
    """One family of networks."""

    pattern: str  # how its names look, for people: `wrn-D-K`
    description: str
    builder: str  # the function that builds it, as `module:function` here; imported when needed
    smallest_image: int | None  # the least height and width; None if inputs have any shape
    rule: Callable[..., Arguments]  # numbers of a name -> the builder's, or raises ValueError

    @property
    def stem(self) -> str:
        """The fixed part of its names."""
        return re.split(r"-[A-Z0-9]", self.pattern)[0]

    def arguments(self, name: str, numbers: list[int]) -> Arguments:
        """The builder's arguments that the numbers of a name stand for."""
        try:
            inspect.signature(self.rule).bind(*numbers)
            if 0 in numbers:
                raise ValueError("its numbers must be at least 1")
            return self.rule(*numbers)
        except TypeError:
            raise FreeTicketsError(f"model {name!r}: write it as {self.pattern}") from None
        except ValueError as error:
            raise FreeTicketsError(f"model {name!r}: {error}") from None


# Factories of networks that users and installed packages have added, each under a whole name.
MODELS: Registry[Callable[..., Any]] = Registry("model", "models")


def _blocks(depth: int, outside: int) -> int:
    # A stage, of three, with `outside` layers around them.
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
_ALL = (
    Architecture(
        "wrn-D-K", "Wide ResNet, pre-activation, of depth D = 6n + 4 and width K: wrn-28-10",
        "resnet:wide_resnet", 8,
        lambda depth, width: {"blocks": _blocks(depth, 4), "width": width},
    ),
    Architecture(
        "cifar-resnet-N", "ResNet for small images, of depth N = 6n + 2: cifar-resnet-20",
        "resnet:cifar_resnet", 8, lambda depth: {"blocks": _blocks(depth, 2)},
    ),
    Architecture(
        "resnet-18|34|50|101|152", "ResNet for ImageNet, v1.5 (stride on the 3x3): resnet-50",
        "resnet:resnet", 32, _stages,
    ),
    Architecture(
        "cnn-W", "small CNN, three convolutions of W, 2W and 4W channels; cnn alone is cnn-32",
        "small:cnn", 8, lambda width=32: {"width": width},
    ),
    Architecture(
        "fast-A-B-C",
        "learns small images in few epochs; three groups of A, B and C channels: fast-64-128-128",
        "small:fast", 9, lambda first, second, third: {"widths": (first, second, third)},
    ),
    Architecture(
        "mlp-A-B-...", "fully connected, with hidden layers of A, B, ... units: mlp-300-100",
        "small:mlp", None, lambda first, *others: {"widths": (first, *others)},
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
    """Returns the architecture that `name` belongs to and its builder's arguments."""
    stem = re.sub(r"(-[0-9]+)*$", "", name)
    entry = ARCHITECTURES.get(stem)
    if entry is None:
        raise UnknownNameError("model", name, _nearest(name) or list(dict(model_names())))
    return entry, entry.arguments(name, [int(n) for n in name[len(stem) :].split("-")[1:]])


def _nearest(name: str) -> list[str]:
    # Each architecture with the user's own numbers: resnet18 is meant to be resnet-18.
    numbers = re.findall("[0-9]+", name)
    candidates = []
    for entry in ARCHITECTURES.values():
        with suppress(FreeTicketsError):
            entry.arguments(name, [int(number) for number in numbers])
            candidates.append("-".join([entry.stem, *numbers]))
    return difflib.get_close_matches(name, candidates, n=1)


def create_model(
    name: str, input_shape: tuple[int, ...], classes: int, **options: Any
) -> "nn.Module":
    """Builds the network called `name`, freshly initialised.

    Our own networks are `nn.Sequential`s of their stages, in the order in which they run. The name
    is one that `model_names` describes or that was registered, or `package.module:function` for a
    factory of your own, which may lie in the current directory (searched last). The factory is
    given `input_shape` ((channels, height, width) for images) and `classes`, the number of outputs,
    if it has parameters with these names. Options are whatever else the network takes, such as
    `dropout=0.1`.

    Example:
        >>> model = create_model("mlp-300-100", (1, 28, 28), 10)
        >>> sum(parameter.numel() for parameter in model.parameters())
        266610
    """
    check_name(name)
    if classes < 1:
        raise FreeTicketsError(f"model {name!r} needs at least 1 class, not {classes}")
    shape = tuple(input_shape)
    task = {"input_shape": shape, "classes": classes}
    if name in MODELS or ":" in name:
        own = MODELS.find(name) if name in MODELS else import_reference("model", name)
        return _call(name, own, {}, task, options)
    architecture, arguments = parse(name)
    least = architecture.smallest_image
    if least is None:
        fits, wanted = min(shape, default=0) >= 1, "a shape of positive sizes"
    else:
        fits = len(shape) == 3 and shape[0] >= 1 and min(shape[1:]) >= least
        wanted = f"images (channels, height, width) of at least {least}x{least}"
    if not fits:
        raise FreeTicketsError(f"model {name!r} takes {wanted}, not {shape}")
    module, _, function = architecture.builder.partition(":")
    builder = getattr(import_module(f".{module}", __package__), function)
    model = _call(name, builder, arguments, task, options)
    if least is not None:
        # The layout in which oneDNN and cuDNN convolve fastest; it spreads from the first layer on.
        model.register_forward_pre_hook(_channels_last)
    return model


def _channels_last(model: "nn.Module", inputs: "tuple[Tensor]") -> "tuple[Tensor]":
    import torch

    return (inputs[0].contiguous(memory_format=torch.channels_last),)


def _call(
    name: str, builder: Callable[..., Any], arguments: Arguments, task: Arguments,
    options: Arguments,
) -> "nn.Module":  # fmt: skip
    from torch import nn

    # An instance is callable too, but every ticket and every run needs a network of its own.
    if not callable(builder) or isinstance(builder, nn.Module):
        raise FreeTicketsError(f"model {name!r} is not a function that returns an nn.Module")
    signature = inspect.signature(builder)
    # By their names only: torchvision's factories take any keyword, and then choke on these.
    given = arguments | {key: task[key] for key in task if key in signature.parameters}
    parameters = signature.parameters.values()
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [each.name for each in parameters if each.name not in given and each.kind in named]
    open_ended = any(each.kind is each.VAR_KEYWORD for each in parameters)
    for option in options:
        if option in given or not (open_ended or option in known):
            if known:
                raise UnknownNameError(f"option of {name}", option, known)
            raise FreeTicketsError(f"model {name!r} takes no options: leave out {option!r}")
    try:
        signature.bind(**given, **options)
    except TypeError as error:
        raise FreeTicketsError(
            f"model {name!r}: {error}; it is called with input_shape, classes and options"
        ) from None
    try:
        model = builder(**given, **options)
    except ValueError as error:  # torch's own words for, say, a dropout of 7
        raise FreeTicketsError(f"model {name!r}: {error}") from error
    if not isinstance(model, nn.Module):
        wrong = type(model).__name__
        raise FreeTicketsError(f"model {name!r} must return an nn.Module, not {wrong}")
    return model
