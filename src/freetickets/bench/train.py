"""Sparse training beside dense training: whole steps, and what masks and exploration cost."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..data import Batches, Split
from ..kernels.library import instruction_set
from . import memory as memory_of
from .settings import Measurement, Settings
from .step import CIFAR, Step
from .timing import Ratio, interleave, ratio, versus

# Tickets, sparsity, and what the whole training may and should take beside one dense model's in
# PyTorch: with AVX-512, and without it.
_ENSEMBLES = ((3, 0.8, (0.62, 0.50), (0.56, 0.48)), (7, 0.9, (0.80, 0.68), (0.66, 0.58)))
_DENSE = (0.55, 0.40), (0.60, 0.45)
_SMALL_NETS: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("wrn-16-2", CIFAR, 64),
    ("cnn", (1, 28, 28), 64),
    ("mlp-512-512", (1, 28, 28), 128),
)


def masks(settings: Settings) -> Iterator[Ratio | str]:
    """A masked training step against the same dense step."""
    model, batch = settings.tiny("wrn-16-4"), settings.batch_or(64)
    yield ratio(
        f"masked step / dense step ({model}, batch {batch}, S=0.8)",
        ("masked", Step(model, batch, 0.8, "masked")),
        ("dense", Step(model, batch)),
        bar=1.05,
        repeats=settings.repeats,
    )


def exploration(settings: Settings) -> Iterator[Ratio | str]:
    """One exploration of a large network against one of its dense training steps."""
    model, batch = settings.tiny("wrn-28-10"), settings.batch_or(128)
    masked = Step(model, 2, 0.8, "masked")
    sparsifier = masked.sparsifier
    assert sparsifier is not None
    sparsifier.keep_gradients()
    masked()
    weights = sum(parameter.numel() for parameter in masked.network.parameters())
    yield ratio(
        f"exploration / dense step ({model}, {weights / 1e6:.1f} M weights, batch {batch}, S=0.8)",
        ("exploration", lambda: sparsifier.explore(0.5)),
        ("dense step", Step(model, batch)),
        bar=0.1,
        repeats=settings.few_repeats,
    )


def loader(settings: Settings) -> Iterator[Ratio | str]:
    """One augmented batch against the training step that uses it."""
    model, batch = settings.tiny("wrn-16-2"), settings.batch_or(128)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (10_000, *CIFAR), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(10, (10_000,), generator=generator))
    batches = Batches(
        split,
        batch,
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
    yield ratio(
        f"CIFAR batch with augmentation / dense step ({model}, batch {batch})",
        ("batch", lambda: next(stream)),
        ("dense step", Step(model, batch)),
        bar=0.05,
        repeats=settings.repeats,
    )


def edst(settings: Settings) -> Iterator[Ratio | str]:
    """The training of a whole EDST ensemble against that of one dense model, PyTorch's and ours."""
    model, batch = settings.model_or("wrn-28-10"), settings.batch_or(64)
    repeats, other = settings.few_repeats, instruction_set() != "avx512"
    sides = {f"sparse step S={s}": Step(model, batch, s) for _, s, _, _ in _ENSEMBLES}
    theirs, ours = "dense step in PyTorch", "our dense step"
    timings = interleave(
        {**sides, theirs: Step(model, batch), ours: Step(model, batch, ours=True)}, repeats
    )
    yield versus(timings, ours, [theirs]).ratio(
        f"training ONE dense model on our kernels / on PyTorch's ({model}, batch {batch})",
        repeats,
        bar=_DENSE[other][0],
        aim=_DENSE[other][1],
    )
    for side, (tickets, sparsity, *bars) in zip(sides, _ENSEMBLES, strict=True):
        # Epochs: 150 to explore and 100 for each ticket, against 250 of the dense model.
        steps = (150 + 100 * tickets) / 250
        for dense, whose in ((theirs, "in PyTorch"), (ours, "on our kernels")):
            yield versus(timings, side, [dense]).ratio(
                f"training a whole EDST ensemble of {tickets} ({steps:g} x the steps) / ONE dense "
                f"model {whose} ({model}, batch {batch}, S={sparsity})",
                repeats,
                factor=steps,
                bar=bars[other][0] if dense == theirs else None,
                aim=bars[other][1] if dense == theirs else None,
            )


def small_nets(settings: Settings) -> Iterator[Ratio | str]:
    """A sparse training step of small networks against the same dense step."""
    for name, shape, default in _SMALL_NETS:
        model, batch = settings.tiny(name), settings.batch_or(default)
        yield ratio(
            f"sparse step / dense step ({model}, batch {batch}, S=0.8)",
            ("sparse", Step(model, batch, 0.8, shape=shape)),
            ("dense", Step(model, batch, shape=shape)),
            repeats=settings.repeats,
        )


def memory(settings: Settings) -> Iterator[Ratio | str]:
    """The peak memory of sparse training against that of dense training."""
    model, batch = settings.model_or("wrn-16-4"), settings.batch_or(64)
    found = {
        side: float(memory_of.measure(model, batch, sparsity, settings.threads))
        for side, sparsity in (("sparse", 0.8), ("dense", 0.0))
    }
    value = found["sparse"] / found["dense"]
    name = f"peak memory of sparse / of dense training ({model}, batch {batch}, S=0.8)"
    yield Ratio(name, value, value, bar=1.0, aim=0.8, seconds={}, repeats=1, memory=found)


MEASUREMENTS: dict[str, Measurement] = {
    "masks": masks,
    "loader": loader,
    "exploration": exploration,
    "edst": edst,
    "small-nets": small_nets,
    "memory": memory,
}
