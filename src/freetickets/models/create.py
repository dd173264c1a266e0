"""Builds a network from its name, ours or a user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import FreeTicketsError, UnknownNameError
from ..registry import import_reference
from .names import MODELS, check_name, parse

if TYPE_CHECKING:
    from torch import Tensor, nn


def create_model(
    name: str, input_shape: tuple[int, ...], classes: int, **options: Any
) -> nn.Module:
    """Builds the network called `name`, freshly initialised.

    Our own networks are `nn.Sequential`s of their stages, in the order in which they run: they can
    be cut and rearranged without being rewritten.

    Args:
        name: A name that `model_names` describes or that was registered, or
            `package.module:function` for a factory of your own, also from the current directory,
            which is looked through last. It is given `input_shape` and `classes` if it has
            parameters of these names.
        input_shape: The shape of one sample, `(channels, height, width)` for images.
        classes: How many outputs.
        **options: What else the network takes, such as `dropout=0.1`.

    Raises:
        FreeTicketsError: The name, the shape or an option does not fit.

    Example:
        >>> model = create_model("mlp-300-100", (1, 28, 28), 10)
        >>> sum(parameter.numel() for parameter in model.parameters())
        266610
    """
    check_name(name)
    if classes < 1:
        raise FreeTicketsError(f"model {name!r} needs at least 1 class, not {classes}")
    task = {"input_shape": tuple(input_shape), "classes": classes}
    if name in MODELS:
        return _call(name, MODELS.find(name), {}, task, options)
    if ":" in name:
        return _call(name, import_reference("model", name), {}, task, options)
    architecture, arguments = parse(name)
    least, shape = architecture.smallest_image, tuple(input_shape)
    if least is None:
        fits, wanted = min(shape, default=0) >= 1, "a shape of positive sizes"
    else:
        fits = len(shape) == 3 and shape[0] >= 1 and min(shape[1:]) >= least
        wanted = f"images (channels, height, width) of at least {least}x{least}"
    if not fits:
        raise FreeTicketsError(f"model {name!r} takes {wanted}, not {shape}")
    module, _, function = architecture.builder.partition(":")
    model = _call(name, getattr(import_module(module), function), arguments, task, options)
    if least is not None:
        # The layout in which oneDNN and cuDNN convolve fastest; it spreads from the first layer on.
        model.register_forward_pre_hook(_channels_last)
    return model


def _channels_last(model: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    import torch

    return (inputs[0].contiguous(memory_format=torch.channels_last),)


def _call(
    name: str,
    builder: Callable[..., Any],
    arguments: dict[str, Any],
    task: dict[str, Any],
    options: dict[str, Any],
) -> nn.Module:
    from torch import nn  # not above: names are listed and checked without waiting for torch

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
        if option in known or (open_ended and option not in given):
            continue
        if not known:
            raise FreeTicketsError(f"model {name!r} takes no options: leave out {option!r}")
        raise UnknownNameError(f"option of {name}", option, known)
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
