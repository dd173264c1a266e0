"""Winograd's way through a convolution that is nearly dense: see native/winograd.h.

One by 1x1 has nothing to transform: its weights are multiplied as they are (native/products.h).
"""

import torch
from torch import Tensor

from .library import Geometry, call, compute, empty, layer_struct, native, ready


def suits(geometry: Geometry) -> bool:
    """Whether a convolution and its gradients can be computed in this way."""
    return geometry.shape[2:] == (3, 3) and geometry.stride == (1, 1) and max(geometry.padding) <= 2


def predicts(geometry: Geometry) -> bool:
    """Whether a convolution can, but perhaps not its gradients."""
    return suits(geometry) or (geometry.shape[2:] == (1, 1) and geometry.padding == (0, 0))


def transform(weight: Tensor, geometry: Geometry, *, transposed: bool = False) -> Tensor:
    """A dense weight in the form that is multiplied; `transposed`: for the input gradient."""
    layer = layer_struct(geometry)
    found = empty(native().ft_winograd_size(layer, transposed))
    call("ft_winograd_weights", layer, ready(weight), transposed, found, torch.get_num_threads())
    return found


def convolve(
    x: Tensor, weights: Tensor, geometry: Geometry, bias: Tensor | None = None,
    residual: Tensor | None = None, relu: bool = False,
    scaling: tuple[Tensor, Tensor, bool] | None = None,
) -> Tensor:  # fmt: skip
    """relu?(convolution + bias + residual), where the convolution is that of relu?(x * scaling).

    Args:
        x: Groups of maps.
        weights: What `transform` made of the weight.
        geometry: The layer.
        bias: One for each output.
        residual: Groups like the result.
        relu: Whether ReLU follows.
        scaling: What is done to x first: see `ops.Scaling`.
    """
    x = ready(x)
    y = empty(x.shape[0], geometry.shape[0], *geometry.output_size(*x.shape[2:4]), x.shape[4])
    added = None if residual is None else ready(residual)
    given = (x, x, weights, *(scaling or (None, None, False)), bias, added, relu, y)
    compute("ft_winograd_forward", geometry, *given)
    return y


def input_gradient(gradient: Tensor, weight: Tensor, geometry: Geometry) -> Tensor:
    """The gradient for what was convolved: a convolution with the weight turned round."""
    outputs, inputs, *kernel = geometry.shape
    padding = (2 - geometry.padding[0], 2 - geometry.padding[1])
    turned = Geometry((inputs, outputs, kernel[0], kernel[1]), (1, 1), padding)
    return convolve(gradient, transform(weight, geometry, transposed=True), turned)


def weight_gradient(x: Tensor, gradient: Tensor, geometry: Geometry) -> Tensor:
    """The gradient for the whole weight, zeros and all."""
    x, gradient = ready(x), ready(gradient)
    found = torch.empty(geometry.shape)
    compute("ft_winograd_gradient", geometry, x, x, gradient, found)
    return found
