"""What a network costs: multiply-accumulates of each weight, and the FLOPs of a step made of them.

The count is RigL's: two operations for each active weight each time it is used. BatchNorm,
activations, pooling and the products inside attention, which have no weights, are left out.
"""

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FreeTicketsError, is_out_of_memory

_TOO_LARGE_TO_COPY = 20_000_000  # parameters


@dataclass(frozen=True)
class LayerCost:
    """One sample through a dense weight: multiply-accumulates, elements of output and weight."""

    macs: int
    outputs: int
    weights: int


def count_macs(
    model: nn.Module,
    input_shape: tuple[int, ...],
    *,
    example: Tensor | Sequence[Tensor] | None = None,
) -> dict[str, LayerCost]:
    """Counts the multiply-accumulates of each weight for one sample, in evaluation mode.

    One sample goes through a copy of the model: on the CPU, which takes a fraction of a second; for
    a model too large to copy on the meta device, which has shapes but no values. The model itself
    may live on any device and stays as it is.

    Args:
        model: Any network. Convolutions, linear and recurrent layers and attention are counted.
        input_shape: The shape of one sample, without the batch dimension.
        example: One sample to use instead of zeros, if they are integers or several inputs.

    Returns:
        The cost of each weight that was used, under the name of the parameter; that of a weight
        that is shared or used several times is the sum.

    Example:
        >>> count_macs(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1)), (3, 32, 32))
        {'0.weight': LayerCost(macs=221184, outputs=8192, weights=216)}
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


def forward_flops(
    costs: Mapping[str, LayerCost], densities: Mapping[str, float] | None = None
) -> float:
    """Returns the FLOPs of one sample forward: two operations a multiply-accumulate.

    `densities` are the shares of active weights of sparse parameters; the others are dense.
    """
    densities = densities or {}
    return math.fsum(2 * cost.macs * densities.get(name, 1.0) for name, cost in costs.items())


def train_flops(forward: float) -> float:
    """The FLOPs of one sample forward and backward; both gradients cost like the forward."""
    return 3 * forward


# One use of a weight: the weight, its name in the module, multiply-accumulates, output elements.
Use = tuple[Tensor, str, int, int]


def _count(model: nn.Module, inputs: list[Tensor], device: str) -> dict[str, LayerCost]:
    model = _copy_to(model, device).eval()
    batch = [_to(each, device).unsqueeze(0) for each in inputs]
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    costs: dict[str, LayerCost] = {}

    def watch(prefix: str, uses: Callable[..., Iterator[Use]]) -> Callable[..., None]:
        def hook(*call: Any) -> None:
            for weight, attribute, macs, outputs in uses(*call):
                # A weight that is computed (pruned, parametrized) is no parameter itself.
                name = names.get(id(weight)) or f"{prefix}.{attribute}".lstrip(".")
                before = costs.get(name, LayerCost(0, 0, 0))
                sums = before.macs + macs, before.outputs + outputs
                costs[name] = LayerCost(*sums, weight.numel())

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
    return costs


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
    fan_in = math.prod(module.weight.shape[1:])
    yield module.weight, "weight", output.numel() * fan_in, output.numel()


def _conv_transpose(
    module: nn.ConvTranspose2d, args: Any, kwargs: Any, output: Tensor
) -> Iterator[Use]:
    inputs = _argument(args, kwargs, 0, "input")
    yield module.weight, "weight", inputs.numel() * module.weight[0].numel(), output.numel()


def _recurrent(module: nn.RNNBase, args: Any, kwargs: Any, output: Any) -> Iterator[Use]:
    inputs = _argument(args, kwargs, 0, "input")
    steps = _rows(inputs.data if hasattr(inputs, "batch_sizes") else inputs)
    for name, weight in module.named_parameters(recurse=False):
        if name.startswith("weight"):
            yield weight, name, steps * weight.numel(), steps * weight.shape[0]


def _attention(module: nn.MultiheadAttention, args: Any, kwargs: Any, output: Any) -> Iterator[Use]:
    arguments = enumerate(("query", "key", "value"))
    query, key, value = (_rows(_argument(args, kwargs, i, name)) for i, name in arguments)
    width = module.embed_dim
    if module.in_proj_weight is not None:
        rows = query + key + value
        yield module.in_proj_weight, "in_proj_weight", rows * width * width, rows * width
    else:
        for rows, own in ((query, "q"), (key, "k"), (value, "v")):
            weight = getattr(module, f"{own}_proj_weight")
            yield weight, f"{own}_proj_weight", rows * weight.numel(), rows * width
    # The module out_proj is never called, only its weight is used: it has no call to be hooked.
    yield module.out_proj.weight, "out_proj.weight", query * width * width, query * width


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if position < len(args) else kwargs[name]


def _rows(tensor: Tensor) -> int:
    """Returns how many vectors a tensor holds, whichever of its dimensions are batch and time."""
    return tensor.numel() // tensor.shape[-1]


_RULES: dict[type[nn.Module] | tuple[type[nn.Module], ...], Callable[..., Iterator[Use]]] = {
    (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d): _forward,
    (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): _conv_transpose,
    nn.RNNBase: _recurrent,
    nn.MultiheadAttention: _attention,
}
