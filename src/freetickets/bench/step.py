"""One training step of a network."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from ..kernels.layout import GroupedLayout
from ..kernels.library import available
from ..models import create_model
from ..sparsity import Sparsifier
from ..sparsity.backend import Backend
from ..sparsity.distribution import Distribution

CIFAR = (3, 32, 32)


class Step:
    """One training step of a network, dense or sparse.

    Args:
        model: The network's name.
        batch: The samples of a batch.
        sparsity: The share of zeros; 0 for a dense network.
        backend: How a sparse network computes; as in our own trainer, if not given.
        shape: Of a sample.
        ours: Whether a dense network runs on our kernels, and not on PyTorch's.
        distribution: Which layers have the zeros.
    """

    def __init__(
        self,
        model: str,
        batch: int,
        sparsity: float = 0.0,
        backend: Backend | None = None,
        shape: tuple[int, ...] = CIFAR,
        *,
        ours: bool = False,
        distribution: Distribution = "erk",
    ) -> None:
        torch.manual_seed(0)
        self.network: nn.Module = create_model(model, shape, 10)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4
        )
        self.sparsifier = (
            Sparsifier(
                self.network, self.optimizer, sparsity,
                distribution=distribution, exploration=None,
                backend=backend or ("sparse" if available() else "masked"),
            )
            if sparsity
            else None
        )  # fmt: skip
        if ours and available():
            GroupedLayout(self.network)
        self._inputs = torch.randn(batch, *shape)
        self._labels = torch.randint(10, (batch,))

    def __call__(self) -> None:
        """Takes the step."""
        loss = F.cross_entropy(self.network(self._inputs), self._labels)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        if self.sparsifier is not None:
            self.sparsifier.step()
