"""Maps that lie in groups, as the sparse convolutions want them, and pass for PyTorch's.

`Maps` is a tensor (N, C, H, W) to everyone who asks, but its numbers lie in groups
(groups, C, H, W, lanes): see `ops`. What can be done to groups is done to them; every other
operation gets ordinary maps, which are made there and then. So a network may do with its maps
whatever it likes, today this and tomorrow that: the tables below only make it faster.

A `Maps` has no memory of its own, so code that goes around Python (an extension, say) can't take
groups for maps. And it has no place in autograd's graph: its groups have. A custom
`autograd.Function` would cut the graph there, so it is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_iter, tree_map_only

from ..errors import FreeTicketsError
from .groups import from_groups, pooled, to_groups
from .library import lanes
from .norm import batch_norm, scale
from .operator import run
from .pool import max_pool, mean_pool, window_of

_Arguments = tuple[Any, ...]
_Options = dict[str, Any]
_Handler = Callable[[Callable[..., Any], _Arguments, _Options], Any]


class Maps(Tensor):
    """Maps (N, C, H, W) whose numbers lie in groups.

    As soon as somebody holds memory of the ordinary maps, such as a view of them, those are what
    counts: what is written into the view must be seen here.

    Args:
        groups: The groups (groups, C, H, W, lanes).
        samples: How many samples they hold.
    """

    _groups: Tensor | None
    _ordinary: Tensor | None
    _samples: int
    _copy: tuple[Tensor, tuple[int, ...]] | None = None  # ordinary maps, while nothing changes

    @staticmethod
    def __new__(cls, groups: Tensor, samples: int) -> Maps:
        """Makes a tensor without memory that knows its groups."""
        shape = (samples, *groups.shape[1:4])
        maps = Tensor._make_wrapper_subclass(cls, shape, dtype=groups.dtype)
        maps._groups, maps._ordinary, maps._samples = groups, None, samples
        return maps

    def __init__(self, groups: Tensor, samples: int) -> None:
        pass

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: _Arguments = (), kwargs: _Options | None = None
    ) -> Any:
        """Does what can be done to groups, and has everything else done to ordinary maps."""
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            found = handler(func, args, kwargs)
            if found is not NotImplemented:
                return found
        return _do_to_ordinary(func, args, kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: _Arguments = (), kwargs: _Options | None = None
    ) -> Any:
        """Does the same for code that does not ask Python first, if no gradient is lost by it."""
        for maps in tree_iter((args, kwargs)):
            if type(maps) is Maps and maps._groups is not None and maps._groups.requires_grad:
                _refuse("an extension that does not ask Python first")
        return _do_to_ordinary(func, args, kwargs or {})


def enter(x: Tensor) -> Tensor:
    """The groups of maps (N, C, H, W) of either kind."""
    ordinary = x._ordinary if type(x) is Maps else x
    if ordinary is not None:
        return cast(Tensor, run(to_groups, ordinary.float(), lanes()))
    groups = cast(Tensor, cast(Maps, x)._groups)
    if groups.requires_grad and not torch.is_grad_enabled():
        _refuse_custom_function()
    return groups


def give(groups: Tensor, like: Tensor, *, keep: bool) -> Tensor:
    """What a convolution makes of maps: ordinary ones, or such as stay in groups if they can."""
    samples = like._samples if type(like) is Maps else like.shape[0]
    if keep and not torch.compiler.is_compiling() and not torch.is_autocast_enabled("cpu"):
        return Maps(groups, samples)
    return as_autocast(run(from_groups, groups, samples))


def as_autocast(x: Tensor) -> Tensor:
    """A layer's result in the precision that autocast wants of it."""
    return x.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else x


def kernels_take(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels can do a layer for this input: float32 on the CPU, or autocast."""
    if weight.dtype != torch.float32 or weight.device.type != "cpu" or in_transform():
        return False
    if type(x) is Maps:
        return True
    is_precise = x.dtype == torch.float32 or torch.is_autocast_enabled("cpu")
    return is_precise and x.is_floating_point() and x.device.type == "cpu"


def in_transform() -> bool:
    """Whether `torch.func` is at work: its tensors only look like tensors."""
    return torch._C._are_functorch_transforms_active()


def leave(output: Any) -> Any:
    """A network's output, with ordinary maps in the place of every `Maps` in it."""
    return tree_map_only(Maps, _ordinary, output)


def _ordinary(x: Maps) -> Tensor:
    """The maps as PyTorch has them; their gradient flows back into the groups."""
    if x._groups is None:
        return cast(Tensor, x._ordinary)
    groups = enter(x)
    # With their graph even where none is recorded: they may take the place of the groups.
    with torch.set_grad_enabled(torch.is_grad_enabled() or groups.requires_grad):
        if x._copy is None or _versions(groups, x._copy[0]) != x._copy[1]:
            found = cast(Tensor, run(from_groups, groups, x._samples))
            x._copy = found, _versions(groups, found)
        return x._copy[0]


def _versions(*tensors: Tensor) -> tuple[int, ...]:
    """How often tensors were written to; in inference mode nobody counts."""
    return tuple(-1 if t.is_inference() else t._version for t in tensors)


def _refuse_custom_function() -> None:
    """Raises an error if a custom function is at work: no gradient would come out of it."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is torch.autograd.Function.apply.__func__.__code__:  # type: ignore[attr-defined]
            _refuse("a custom autograd.Function (or a reentrant checkpoint)")
        frame = cast(Any, frame.f_back)


def _refuse(who: str) -> None:
    raise FreeTicketsError(
        f"{who} can't take the maps of a sparse convolution, because no gradient would come "
        "out of it: use backend='masked'"
    )


def _do_to_ordinary(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    made: dict[int, tuple[Maps, Tensor, int]] = {}

    def convert(x: Maps) -> Tensor:
        if id(x) not in made:
            found = _ordinary(x)
            made[id(x)] = (x, found, _versions(found)[0])
        return made[id(x)][1]

    args, kwargs = tree_map_only(Maps, convert, (args, kwargs))
    result = func(*args, **kwargs)
    for maps, found, version in made.values():
        changed = version < 0 or found._version != version
        if maps._groups is not None and (changed or _may_hold(result, found)):
            maps._groups, maps._ordinary = None, found
    return result


def _may_hold(result: Any, tensor: Tensor) -> bool:
    """Whether a result may share memory with a tensor."""
    for part in tree_iter(result):
        if isinstance(part, Tensor):
            if torch._C._is_alias_of(part, tensor):  # type: ignore[attr-defined]
                return True
        elif not isinstance(part, _WITHOUT_MEMORY):
            return True
    return False


_WITHOUT_MEMORY = (int, float, complex, str, torch.dtype, torch.device, type(None))


# ---- what can be said without the numbers


def _metadata(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _of_graph(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    """What autograd knows of maps, it knows of their groups."""
    maps = args[0]
    return func(maps._ordinary if maps._groups is None else maps._groups, *args[1:], **kwargs)


def _gradient(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    gradient, maps = _of_graph(func, args, kwargs), args[0]
    return gradient if maps._groups is None or gradient is None else _samples_of(maps, gradient)


def _register_hook(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    maps, hook = args
    if maps._groups is None:
        return NotImplemented

    def hook_of_groups(gradient: Tensor) -> Tensor | None:
        found = hook(_samples_of(maps, gradient))
        return None if found is None else enter(found)

    return maps._groups.register_hook(hook_of_groups)


def _gradients_of(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    """`torch.autograd.grad`, for maps among its inputs."""
    outputs, inputs = args
    groups = [x._groups if type(x) is Maps and x._groups is not None else leave(x) for x in inputs]
    found = func(leave(outputs), groups, **leave(kwargs))
    return tuple(
        g if g is None or type(x) is not Maps or x._groups is None else _samples_of(x, g)
        for x, g in zip(inputs, found, strict=True)
    )


def _samples_of(maps: Maps, groups: Tensor) -> Tensor:
    return cast(Tensor, run(from_groups, groups, maps._samples))


# ---- what can be done to groups


def _pointwise(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    """Number by number, among maps of the same samples and what is the same for all samples.

    Lanes without a sample hold numbers too: none of these functions makes them infinite.
    """
    samples = {x._samples for x in args if type(x) is Maps}
    if len(samples) != 1 or not all(isinstance(v, _SETTINGS) for v in kwargs.values()):
        return NotImplemented
    if type(args[0]) is not Maps and getattr(func, "__name__", "").endswith("_"):
        return NotImplemented  # it works in place on something else
    grouped = [_beside_groups(x) for x in args]
    if any(x is None for x in grouped):
        return NotImplemented
    found = func(*grouped, **kwargs)
    return args[0] if found is grouped[0] else Maps(found, *samples)


_SETTINGS = (int, float, str)


def _beside_groups(x: Any) -> Any:
    """What stands for an argument beside groups; None if nothing does."""
    if isinstance(x, _SETTINGS):
        return x
    if type(x) is Maps:
        return None if x._groups is None else enter(x)
    is_plain = type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32
    if not is_plain or x.dim() > 4 or (x.dim() == 4 and x.shape[0] != 1):
        return None
    return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape) + (1,))


def _pool(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    x, *settings = args or (None,)
    if type(x) is not Maps or x._groups is None:
        return NotImplemented
    if func is F.max_pool2d and (window := window_of(*settings, **kwargs)) is not None:
        return Maps(run(max_pool, enter(x), window)[0], x._samples)
    if func is F.adaptive_avg_pool2d and not kwargs and settings in ([1], [(1, 1)], [[1, 1]]):
        return Maps(run(mean_pool, enter(x)), x._samples)
    return Maps(pooled(lambda maps: func(maps, *settings, **kwargs), enter(x)), x._samples)


def _concatenate(func: Callable[..., Any], args: _Arguments, kwargs: _Options) -> Any:
    """Channels behind channels."""
    if not args or len(args) + len(kwargs) != 2:
        return NotImplemented
    parts, dim = args[0], args[1] if len(args) == 2 else kwargs.get("dim")
    if dim not in (1, -3) or not all(type(x) is Maps and x._groups is not None for x in parts):
        return NotImplemented
    if len({x._samples for x in parts}) != 1:
        return NotImplemented
    return Maps(torch.cat([enter(x) for x in parts], 1), parts[0]._samples)


def _normalize(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5, relu: bool = False,
) -> Any:  # fmt: skip
    """`F.batch_norm`, and ReLU if it follows, of groups."""
    if type(x) is not Maps or x._groups is None or weight is None or bias is None:
        return NotImplemented
    groups, samples = enter(x), x._samples
    if not training:
        if running_mean is None or running_var is None:
            return NotImplemented
        given = (weight, bias, running_mean, running_var)
        return Maps(run(scale, groups, *given, samples, eps, relu), samples)
    count = samples * groups.shape[2] * groups.shape[3]
    if count <= 1:
        return NotImplemented  # PyTorch refuses it
    y, mean, variance = run(batch_norm, groups, weight, bias, samples, eps, relu)
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            running_mean.lerp_(mean, momentum)
            running_var.lerp_(variance * (count / (count - 1)), momentum)
    return Maps(y, samples)


def rectified_norm(bn: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """ReLU of BatchNorm, in one pass over the groups if there are any."""
    if type(x) is Maps and bn.affine and bn.track_running_stats and bn.momentum is not None:
        mean, variance = bn.running_mean, bn.running_var
        given = (bn.weight, bn.bias, bn.training, bn.momentum, bn.eps, True)
        y = _normalize(x, mean, variance, *given)
        if y is not NotImplemented:
            if bn.training:
                cast(Tensor, bn.num_batches_tracked).add_(1)
            return cast(Tensor, y)
    return F.relu(nn.BatchNorm2d.forward(bn, x), inplace=True)


# ---- the tables


def _getters(*names: str) -> list[Any]:
    return [getattr(Tensor, name).__get__ for name in names]


_POINTWISE: list[Any] = [
    F.relu, F.relu6, F.hardtanh, F.leaky_relu, F.elu, F.silu, F.gelu, F.hardswish, F.dropout,
    *(getattr(torch, name) for name in ("relu", "relu_", "sigmoid", "tanh", "add", "sub", "mul")),
    *(
        getattr(Tensor, name)
        for name in (
            "relu", "relu_", "sigmoid", "tanh", "neg", "clone",
            "add", "add_", "sub", "sub_", "mul", "mul_",
        )
    ),
]  # fmt: skip
_METADATA: list[Any] = [
    Tensor.size, Tensor.dim, Tensor.numel, Tensor.stride, Tensor.is_contiguous, Tensor.__len__,
    Tensor.is_floating_point, torch.is_floating_point, torch.numel,
    *_getters("shape", "ndim", "dtype", "device", "layout", "is_cuda", "is_sparse", "is_quantized"),
]  # fmt: skip
_HANDLERS: dict[Any, _Handler] = {
    **dict.fromkeys(_METADATA, _metadata),
    **dict.fromkeys(
        [*_getters("requires_grad", "grad_fn", "is_leaf"), Tensor.retain_grad], _of_graph
    ),
    **dict.fromkeys(_getters("grad"), _gradient),
    Tensor.register_hook: _register_hook,
    torch.autograd.grad: _gradients_of,
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(
        [F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d], _pool
    ),
    torch.cat: _concatenate,
    F.batch_norm: lambda func, args, kwargs: _normalize(*args, **kwargs),
}
