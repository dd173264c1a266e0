"""What sparse training costs beside dense training: masks, exploration, data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..data import Batches, Split
from ..models import create_model
from ..sparsity import Sparsifier
from .timing import Ratio, ratio


class _Step:
    """One training step of a network, dense or masked."""

    def __init__(self, model: str, batch: int, sparsity: float) -> None:
        torch.manual_seed(0)
        self.network: nn.Module = create_model(model, (3, 32, 32), 10)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4
        )
        self.sparsifier = (
            Sparsifier(self.network, self.optimizer, sparsity, exploration=None)
            if sparsity
            else None
        )
        self._inputs = torch.randn(batch, 3, 32, 32)
        self._labels = torch.randint(10, (batch,))

    def __call__(self) -> None:
        loss = F.cross_entropy(self.network(self._inputs), self._labels)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        if self.sparsifier is not None:
            self.sparsifier.step()


def masks(repeats: int) -> Ratio:
    """A masked training step against the same dense step."""
    return ratio(
        "masked step / dense step (WRN-16-4, batch 64, S=0.8)",
        ("masked", _Step("wrn-16-4", 64, 0.8)),
        ("dense", _Step("wrn-16-4", 64, 0.0)),
        bar=1.05,
        repeats=repeats,
    )


def exploration(repeats: int) -> Ratio:
    """One exploration of a large network against one of its dense training steps."""
    masked = _Step("wrn-28-10", 2, 0.8)
    sparsifier = masked.sparsifier
    assert sparsifier is not None
    sparsifier.keep_gradients()
    masked()
    return ratio(
        "exploration / dense step (WRN-28-10, 36.5 M weights, batch 128, S=0.8)",
        ("exploration", lambda: sparsifier.explore(0.5)),
        ("dense step", _Step("wrn-28-10", 128, 0.0)),
        bar=0.1,
        repeats=max(1, repeats // 5),
    )


def loader(repeats: int) -> Ratio:
    """One augmented batch against the training step that uses it."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (10_000, 3, 32, 32), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(10, (10_000,), generator=generator))
    batches = Batches(
        split,
        128,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2023, 0.1994, 0.2010),
        augmentation="reflect-crop-flip",
    )

    def endless() -> Iterator[tuple[Tensor, Tensor]]:
        epoch = 0
        while True:
            yield from batches.epoch(epoch)
            epoch += 1

    stream = endless()
    return ratio(
        "CIFAR batch with augmentation / dense step (WRN-16-2, batch 128)",
        ("batch", lambda: next(stream)),
        ("dense step", _Step("wrn-16-2", 128, 0.0)),
        bar=0.05,
        repeats=repeats,
    )


MEASUREMENTS: dict[str, Callable[[int], Ratio]] = {
    "masks": masks,
    "loader": loader,
    "exploration": exploration,
}
