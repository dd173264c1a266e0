"""What a network costs: multiply-accumulates of each weight, and the FLOPs of a step made of them.

The count is RigL's: two operations for each active weight each time it is used. BatchNorm,
activations, pooling and the products inside attention, which have no weights, are left out.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FreeTicketsError, is_out_of_memory

_TOO_LARGE_TO_COPY = 20_000_000  # parameters


def count_macs(
    model: nn.Module,
    input_shape: tuple[int, ...],
    *,
    example: Tensor | Sequence[Tensor] | None = None,
) -> dict[str, int]:
    """Counts the multiply-accumulates of each weight for one sample, in evaluation mode.

    One sample goes through a copy of the model: on the CPU, which takes a fraction of a second; for
    a model too large to copy on the meta device, which has shapes but no values. The model itself
    may live on any device and stays as it is.

    Args:
        model: Any network. Convolutions, linear and recurrent layers and attention are counted.
        input_shape: The shape of one sample, without the batch dimension.
        example: One sample to use instead of zeros, if they are integers or several inputs.

    Returns:
        That of each weight that was used, under the name of the parameter; of a weight that is
        shared or used several times the sum.

    Example:
        >>> count_macs(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1)), (3, 32, 32))
        {'0.weight': 221184}
    """
    if example is None:
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), None)
        inputs = [torch.zeros(input_shape, dtype=dtype, device="meta")]
    else:
        inputs = [example] if isinstance(example, Tensor) else list(example)
    # The meta device needs no memory, but torch takes a second to load its kernels, once.
    large = sum(parameter.numel() for parameter in model.parameters()) > _TOO_LARGE_TO_COPY
    failure: Exception | None = None
    for device in ("meta", "cpu") if large else ("cpu", "meta"):
        try:
            return _count(model, inputs, device)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            failure = error  # the second attempt shows whether the model is at fault
    if isinstance(failure, FreeTicketsError):  # such as MIMO's, which says what does not suit it
        raise failure
    shapes = ", ".join(str(tuple(each.shape)) for each in inputs)
    raise FreeTicketsError(
        f"cannot count the FLOPs of {type(model).__name__} on a sample of shape {shapes}: "
        + str(failure).partition("\n")[0]
    ) from failure


def forward_flops(macs: Mapping[str, int], densities: Mapping[str, float] | None = None) -> float:
    """Returns the FLOPs of one sample forward: two operations a multiply-accumulate.

    `densities` are the shares of active weights of sparse parameters; the others are dense.
    """
    shares = densities or {}
    return math.fsum(2 * count * shares.get(name, 1.0) for name, count in macs.items())


def train_flops(forward: float) -> float:
    """The FLOPs of one sample forward and backward; both gradients cost like the forward."""
    return 3 * forward


# One use of a weight: the weight, its name in the module, multiply-accumulates.
Use = tuple[Tensor, str, int]


def _count(model: nn.Module, inputs: list[Tensor], device: str) -> dict[str, int]:
    model = _copy_to(model, device).eval()
    batch = [_to(each, device).unsqueeze(0) for each in inputs]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, int] = {}

    def watch(prefix: str, uses: Callable[..., Iterator[Use]]) -> Callable[..., None]:
        def hook(*call: Any) -> None:
            for weight, attribute, macs in uses(*call):
                # A weight that is computed (pruned, parametrized) is no parameter itself.
                name = names.get(id(weight)) or f"{prefix}.{attribute}".lstrip(".")
                found[name] = found.get(name, 0) + macs

        return hook

    for prefix, module in model.named_modules():
        # The user's own hooks may have effects elsewhere, and no result here depends on them.
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
        for kinds, uses in _RULES.items():
            if isinstance(module, kinds):
                module.register_forward_hook(watch(prefix, uses), with_kwargs=True)
    with torch.no_grad():
        model(*batch)
    return found


def _copy_to(model: nn.Module, device: str) -> nn.Module:
    """Copies a model to `device`: deepcopy takes the tensors from its memo, shared ones once."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        own = (module._parameters, module._buffers, vars(module))
        for tensor in itertools.chain(*(each.values() for each in own)):
            if isinstance(tensor, Tensor) and id(tensor) not in memo:
                moved = _to(tensor, device)
                is_parameter = isinstance(tensor, nn.Parameter)
                memo[id(tensor)] = nn.Parameter(moved, False) if is_parameter else moved
    return copy.deepcopy(model, memo)


def _to(tensor: Tensor, device: str) -> Tensor:
    if tensor.device.type == "meta":
        return torch.zeros_like(tensor, device=device)
    return tensor.detach().to(device, copy=True)


def _forward(module: nn.Conv2d, args: Any, kwargs: Any, output: Tensor) -> Iterator[Use]:
    yield module.weight, "weight", output.numel() * math.prod(module.weight.shape[1:])


def _conv_transpose(module: nn.ConvTranspose2d, args: Any, kwargs: Any, _: Any) -> Iterator[Use]:
    inputs = _argument(args, kwargs, 0, "input")
    yield module.weight, "weight", inputs.numel() * module.weight[0].numel()


def _recurrent(module: nn.RNNBase, args: Any, kwargs: Any, _: Any) -> Iterator[Use]:
    inputs = _argument(args, kwargs, 0, "input")
    steps = _rows(inputs.data if hasattr(inputs, "batch_sizes") else inputs)
    for name, weight in module.named_parameters(recurse=False):
        if name.startswith("weight"):
            yield weight, name, steps * weight.numel()


def _attention(module: nn.MultiheadAttention, args: Any, kwargs: Any, _: Any) -> Iterator[Use]:
    arguments = enumerate(("query", "key", "value"))
    rows = [_rows(_argument(args, kwargs, place, name)) for place, name in arguments]
    if (joint := module.in_proj_weight) is not None:
        yield joint, "in_proj_weight", sum(rows) * module.embed_dim**2
    else:
        for count, name in zip(
            rows, ("q_proj_weight", "k_proj_weight", "v_proj_weight"), strict=True
        ):
            weight = getattr(module, name)
            yield weight, name, count * weight.numel()
    # The module out_proj is never called, only its weight is used: it has no call to be hooked.
    yield module.out_proj.weight, "out_proj.weight", rows[0] * module.embed_dim**2


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if position < len(args) else kwargs[name]


def _rows(tensor: Tensor) -> int:  # vectors, whichever of its dimensions are batch and time
    return tensor.numel() // tensor.shape[-1]


_RULES: dict[type[nn.Module] | tuple[type[nn.Module], ...], Callable[..., Iterator[Use]]] = {
    (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d): _forward,
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): _conv_transpose,
    nn.RNNBase: _recurrent,
    nn.MultiheadAttention: _attention,
}
