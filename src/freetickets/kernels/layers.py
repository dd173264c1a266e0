"""Layers that hold only their active weights, and compute only with them."""

from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import FreeTicketsError
from . import ops
from .choices import Choices
from .library import Geometry
from .linear import linear_layer
from .maps import Maps, as_autocast, enter, give, in_transform, kernels_take
from .operator import run


class SparseLayer(nn.Module):
    """What sparse layers share: values as a parameter, the topology as buffers.

    The values are one-dimensional and stand in the order of their places in the dense weight. An
    exploration rewrites them and the buffers in place, so optimizers and data-parallel wrappers
    notice nothing. A `state_dict` holds the dense weight with its zeros, as that of the layer
    which this one replaces.

    Attributes:
        path: Where the layer stands in its network.
        values: The active weights.
        keep_gradient: Whether the coming backward pass also computes the dense gradient.
        gradient: The dense gradient, summed over the backward passes that kept it.
        pending: A dense weight that was loaded and does not fit the topology, which is to follow.
    """

    values: nn.Parameter
    indices: Tensor
    plan: Tensor
    geometry: Geometry

    _settings: tuple[str, ...]  # what it takes over from the layer that it replaces

    def __init__(self, layer: Any, mask: Tensor, choices: Choices, path: str = "") -> None:
        nn.Module.__init__(self)
        for name in self._settings:
            setattr(self, name, getattr(layer, name))
        indices = _indices(mask)
        self.geometry = geometry_of(layer)
        self.path = path
        self.dense_shape = layer.weight.shape
        self.choices = choices
        self.keep_gradient = False
        self.gradient: Tensor | None = None
        self._pass = -1  # the backward pass that added to `gradient` last
        self.pending: Tensor | None = None
        self.values = nn.Parameter(layer.weight.detach().flatten()[indices.long()])
        self.register_buffer("indices", indices, persistent=False)
        self.register_buffer("plan", ops.make_plan(indices, self.geometry), persistent=False)
        self.bias = layer.bias
        self.train(layer.training)

    @property
    def weight(self) -> Tensor:
        """The dense weight, zeros and all; gradients flow through it to the values."""
        return ops.scatter(self.values, self.indices, list(self.dense_shape))

    @property
    def mask(self) -> Tensor:
        """The topology."""
        flat = torch.zeros(self.dense_shape.numel(), dtype=torch.bool)
        flat[self.indices.long()] = True
        return flat.view(self.dense_shape)

    @torch.no_grad()
    def rewire(self, mask: Tensor) -> None:
        """Gives the layer another topology with as many weights; those that stay keep theirs."""
        dense = self.weight if self.pending is None else self.pending
        indices = _indices(mask)
        if indices.numel() != self.indices.numel():
            raise FreeTicketsError(
                f"a sparse layer of {self.indices.numel()} weights can't have {indices.numel()}"
            )
        self.pending = None
        self.values.copy_(dense.flatten()[indices.long()])
        self.indices.copy_(indices)
        self.plan.copy_(ops.make_plan(indices, self.geometry))

    def record(self, x: Tensor, y: Tensor) -> None:
        """Has the backward pass compute the dense gradient too, if it is wanted."""
        if self.keep_gradient and y.requires_grad:
            x = x.detach()
            y.register_hook(  # type: ignore[no-untyped-call]
                lambda gradient: self._add_gradient(x, gradient)
            )

    def _add_gradient(self, x: Tensor, gradient: Tensor) -> None:
        with torch.no_grad():
            self._add_dense_gradient(self.dense_gradient(x, gradient.detach()))

    @torch.no_grad()
    def _add_dense_gradient(self, dense: Tensor) -> None:
        # Gradients that were set to zero without a step (an overflow) count no more.
        this_pass = torch._C._current_graph_task_id()
        if this_pass != self._pass and (self.values.grad is None or not self.values.grad.any()):
            self.gradient = None
        self._pass = this_pass
        self.gradient = dense.detach() if self.gradient is None else self.gradient + dense

    def dense_gradient(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The gradient for the whole weight."""
        raise NotImplementedError

    def dense_weight(self) -> Tensor:
        """The dense weight where PyTorch's kernels compute; it keeps its gradient if wanted.

        That is in another precision, on another device, and in `torch.func`: see `kernels_take`.
        """
        weight = self.weight
        if self.keep_gradient and weight.requires_grad and not in_transform():
            weight.register_hook(self._add_dense_gradient)  # type: ignore[no-untyped-call]
        return weight

    def check_ready(self) -> None:
        """Refuses to compute with a weight that does not fit the topology."""
        if self.pending is not None:
            raise FreeTicketsError(
                "the loaded weights have another topology: load the sparsifier's state too"
            )

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        destination[prefix + "weight"] = self.weight if keep_vars else self.weight.detach()
        super()._save_to_state_dict(destination, prefix, keep_vars)
        del destination[prefix + "values"]

    @torch.no_grad()
    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        weight = state.get(prefix + "weight")
        if weight is not None and weight.shape == self.dense_shape:
            # The topology may follow, in the sparsifier's state: until then, nothing is lost.
            weight = weight.to(self.values)
            values = weight.flatten()[self.indices.long()]
            fits = int(weight.count_nonzero()) == int(values.count_nonzero())
            self.pending = None if fits else weight.clone()
            state = {
                name: tensor for name, tensor in state.items() if name != prefix + "weight"
            } | {prefix + "values": values}
        super()._load_from_state_dict(state, prefix, *rest)


class SparseConv2d(SparseLayer, nn.Conv2d):  # type: ignore[override]
    """A convolution with an unstructured sparse weight.

    Attributes:
        keeps_groups: Whether its result stays in groups, as `Maps`.
    """

    keeps_groups: bool = False
    _settings = (
        "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed",
        "output_padding", "groups", "padding_mode", "_reversed_padding_repeated_twice",
    )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Convolves maps (N, C, H, W) or (C, H, W)."""
        self.check_ready()
        if (type(x) is not Maps and x.dim() != 4) or not kernels_take(x, self.values):
            return F.conv2d(x, self.dense_weight(), self.bias, self.stride, self.padding)
        groups = enter(x)
        ways = self.choices.conv2d(self.path, self.geometry, self.values.numel(), groups)
        weights = (self.values, self.indices, self.plan, self.bias)
        y: Tensor = run(ops.conv2d, groups, *weights, *map(list, self.geometry), ways)
        self.record(groups, y)
        return give(y, x, keep=self.keeps_groups)

    def dense_gradient(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The gradient for the whole weight."""
        shape, stride, padding = map(list, self.geometry)
        return ops.dense_weight_gradient(x, gradient, shape, stride, padding)


class SparseLinear(SparseLayer, nn.Linear):  # type: ignore[override]
    """A linear layer with an unstructured sparse weight."""

    _settings = ("in_features", "out_features")

    def forward(self, x: Tensor) -> Tensor:
        """Maps (..., in_features) to (..., out_features)."""
        return self._forward(x, relu=False)

    def rectified(self, x: Tensor) -> Tensor:
        """ReLU of what the layer makes of x, in one pass if it can be."""
        # Growth looks at the gradient in front of ReLU.
        return self.forward(x).relu_() if self.keep_gradient else self._forward(x, relu=True)

    def _forward(self, x: Tensor, relu: bool) -> Tensor:
        self.check_ready()
        fits = x.dim() > 0 and x.shape[-1] == self.in_features
        if not fits or not kernels_take(x, self.values):
            y = F.linear(x, self.dense_weight(), self.bias)
            return y.relu_() if relu else y
        weights = (self.values, self.indices, self.plan)
        choose = partial(self.choices.linear, self.path, self.geometry, self.values.numel())
        y, flat = linear_layer(x, weights, self.bias, self.geometry, choose, relu)
        self.record(flat, y)
        return as_autocast(y)

    def dense_gradient(self, x: Tensor, gradient: Tensor) -> Tensor:
        """The gradient for the whole weight."""
        return gradient.reshape(-1, gradient.shape[-1]).t() @ x


def geometry_of(layer: nn.Conv2d | nn.Linear) -> Geometry:
    """What a dense layer is, for the kernels."""
    if isinstance(layer, nn.Linear):
        return Geometry((layer.out_features, layer.in_features, 1, 1))
    padding = cast(tuple[int, int], layer.padding)
    height, width = layer.kernel_size
    shape = (layer.out_channels, layer.in_channels, height, width)
    return Geometry(shape, cast(tuple[int, int], layer.stride), padding)


def can_be_sparse(layer: nn.Module) -> bool:
    """Whether there is a sparse layer that does the same as this one."""
    if type(layer) not in (nn.Linear, nn.Conv2d):
        return False
    if isinstance(layer, nn.Conv2d) and (
        layer.groups != 1
        or layer.dilation != (1, 1)
        or layer.padding_mode != "zeros"
        or isinstance(layer.padding, str)
    ):
        return False
    weight = cast(Tensor, layer.weight)
    return (
        weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and not has_hooks(layer)
        and geometry_of(cast(Any, layer)).supported
    )


def make_sparse(layer: nn.Module, mask: Tensor, choices: Choices, path: str = "") -> SparseLayer:
    """Returns the sparse layer that does what a dense one does, for weights within the mask."""
    kind = SparseLinear if isinstance(layer, nn.Linear) else SparseConv2d
    return kind(layer, mask, choices, path)


@torch.no_grad()
def make_dense(layer: SparseLayer) -> nn.Linear | nn.Conv2d:
    """Undoes `make_sparse`."""
    has_bias = layer.bias is not None
    if isinstance(layer, SparseLinear):
        dense: Any = nn.Linear(layer.in_features, layer.out_features, has_bias, device="meta")
    else:
        conv = cast(nn.Conv2d, layer)
        dense = nn.Conv2d(
            conv.in_channels, conv.out_channels, cast(Any, conv.kernel_size),
            cast(Any, conv.stride), cast(Any, conv.padding), bias=has_bias, device="meta",
        )  # fmt: skip
    dense.weight = nn.Parameter(layer.weight)
    dense.bias = layer.bias
    return cast("nn.Linear | nn.Conv2d", dense.train(layer.training))


def replace(root: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Puts a module in the place of another, wherever it stands."""
    for parent in list(root.modules()):
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = new


def hidden_modules(root: nn.Module) -> set[nn.Module]:
    """The modules that a network also keeps where `replace` does not reach: in lists and the like.

    Its code may call them there, so they must stay what they are.
    """
    found: set[nn.Module] = set()

    def look(value: Any, depth: int) -> None:
        if isinstance(value, nn.Module):
            found.add(value)
        elif depth > 0 and isinstance(value, (dict, list, tuple, set)):
            for each in value.values() if isinstance(value, dict) else value:
                look(each, depth - 1)

    for module in root.modules():
        for name, value in vars(module).items():
            if name != "_modules":
                look(value, 2)
    return found


def has_hooks(module: nn.Module) -> bool:
    """Whether someone watches what goes in and out of a module."""
    forward = module._forward_hooks or module._forward_pre_hooks
    return bool(forward or module._backward_hooks or module._backward_pre_hooks)


def _indices(mask: Tensor) -> Tensor:
    return mask.cpu().flatten().nonzero().flatten().int()
