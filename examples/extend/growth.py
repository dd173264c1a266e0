"""A growth rule of one's own: where the gradient is large, but with luck.

freetickets train edst --grow growth:noisy_gradient --model mlp-64
"""

import torch
from torch import Tensor

from freetickets.sparsity.score import WeightView, gradient


def noisy_gradient(view: WeightView) -> Tensor:
    """|gradient| times a random number, so that the order of near ones changes."""
    luck = torch.rand(view.weight.shape, generator=view.generator)
    return gradient(view) * luck.to(view.weight.device)
