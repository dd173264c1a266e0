"""Sparse training beside dense training: whole steps, and what masks and exploration cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, count
from typing import Literal

import torch

from ..data import Batches, Split
from .figure import ONE_DENSE, Point
from .step import CIFAR, Step, peak_memory
from .timing import (
    NO_LIMITS,
    Bars,
    Limits,
    Ratio,
    Settings,
    Timing,
    bars,
    interleave,
    ratio,
    versus,
)

# Tickets, sparsity, and what the whole training may and should take beside one dense model's in
# PyTorch.
_ENSEMBLES = (
    (3, 0.8, bars((0.62, 0.50), (0.56, 0.48))),
    (7, 0.9, bars((0.80, 0.68), (0.66, 0.58))),
)
_DENSE = bars((0.55, 0.40), (0.60, 0.45))
_SMALL_NETS: tuple[tuple[str, tuple[int, ...], int, Bars | None], ...] = (
    ("wrn-16-2", CIFAR, 64, bars((0.48, 0.36), (0.45, 0.35))),
    ("cnn", (1, 28, 28), 64, None),
    ("mlp-512-512", (1, 28, 28), 128, None),
)
# Distributions and sparsities of the figure.
_CURVES: tuple[tuple[Literal["erk", "uniform"], tuple[float, ...]], ...] = (
    ("erk", (0.8, 0.9, 0.95)),
    ("uniform", (0.8, 0.9)),
)
_THEIRS, _OURS = "dense in PyTorch", "our dense"
_LOOP = "in a loop of one's own"  # where layers keep their parameters: backend="auto"


def masks(settings: Settings) -> Iterator[Ratio | str]:
    """A masked training step against the same dense step."""
    model, batch = settings.tiny("wrn-16-4"), settings.batch_or(64)
    yield ratio(
        f"masked step / dense step, both in PyTorch ({model}, batch {batch}, S=0.8)",
        ("masked", Step(model, batch, 0.8, "masked")),
        (_THEIRS, Step(model, batch)),
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
        f"exploration / dense step in PyTorch "
        f"({model}, {weights / 1e6:.1f} M weights, batch {batch}, S=0.8)",
        ("exploration", lambda: sparsifier.explore(0.5)),
        (_THEIRS, Step(model, batch)),
        bar=0.1,
        repeats=settings.few_repeats,
    )


def loader(settings: Settings) -> Iterator[Ratio | str]:
    """One augmented batch against the training step that uses it."""
    model, batch = settings.tiny("wrn-16-2"), settings.batch_or(128)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (10_000, *CIFAR), generator=generator, dtype=torch.uint8)
    split = Split(images, torch.randint(10, (10_000,), generator=generator))
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    batches = Batches(split, batch, mean=mean, std=std, augmentation="reflect-crop-flip")
    stream = chain.from_iterable(map(batches.epoch, count()))
    yield ratio(
        f"CIFAR batch with augmentation / dense step in PyTorch ({model}, batch {batch})",
        ("batch", lambda: next(stream)),
        (_THEIRS, Step(model, batch)),
        bar=0.05,
        repeats=settings.repeats,
    )


def edst(settings: Settings) -> Iterator[Ratio | str]:
    """The training of a whole EDST ensemble against that of one dense model, PyTorch's and ours."""
    model, batch, repeats = _large(settings)
    sides = {f"sparse step S={s}": Step(model, batch, s) for _, s, _ in _ENSEMBLES}
    loop = {_LOOP: Step(model, batch, _ENSEMBLES[0][1], "auto")}
    timings = interleave({**sides, **loop, **_dense_steps(model, batch)}, repeats)
    yield _our_dense(timings, model, batch, repeats)
    for side, (tickets, sparsity, limits) in zip(sides, _ENSEMBLES, strict=True):
        steps = _steps(tickets)
        what = (
            f"training a whole EDST ensemble of {tickets} ({steps:g} x the steps) / ONE dense model"
        )
        about = f"{model}, batch {batch}, S={sparsity}"
        what += " / ONE dense model"
        yield from _beside_dense(timings, side, what, about, repeats, steps, limits.here)
    tickets, sparsity, _ = _ENSEMBLES[0]
    what = f"training a whole EDST ensemble of {tickets} {_LOOP} / ONE dense model"
    about = f"{model}, batch {batch}, S={sparsity}, backend auto"
    rows = _beside_dense(timings, _LOOP, what, about, repeats, _steps(tickets))
    yield next(rows)  # beside PyTorch's


def sparsity(settings: Settings) -> Iterator[Ratio | str]:
    """The same for three tickets, against sparsity: with it, all that one ensemble costs falls."""
    model, batch, repeats = _large(settings)
    sides = {
        (distribution, sparsity): Step(model, batch, sparsity, distribution=distribution)
        for distribution, sparsities in _CURVES
        for sparsity in sparsities
    }
    names = {key: f"{key[0]} S={key[1]}" for key in sides}
    steps, tickets = {names[key]: step for key, step in sides.items()}, 3
    timings = interleave({**steps, **_dense_steps(model, batch)}, repeats)
    ours = _our_dense(timings, model, batch, repeats)
    yield Point(**vars(ours), curve=ONE_DENSE, sparsity=0.0)
    what = f"training a whole EDST ensemble of {tickets} / ONE dense model"
    for (distribution, sparsity), name in names.items():
        about = f"{model}, batch {batch}, {distribution}, S={sparsity}"
        row, of_ours = _beside_dense(timings, name, what, about, repeats, _steps(tickets))
        curve = distribution.upper() if distribution == "erk" else distribution
        yield Point(**vars(row), curve=curve, sparsity=sparsity)
        yield of_ours


def medium(settings: Settings) -> Iterator[Ratio | str]:
    """Steps of the scale medium: the lengths that stand for equal seconds come from these."""
    model, wider = settings.tiny("fast-64-128-128"), settings.tiny("fast-96-192-192")
    batch = settings.batch_or(128)
    sides = {
        **_dense_steps(model, batch),
        **{f"sparse S={s}": Step(model, batch, s) for _, s, _ in _ENSEMBLES},
        "our dense, wider": Step(wider, batch, ours=True),
        "sparse S=0.8, wider": Step(wider, batch, 0.8),
    }
    timings = interleave(sides, settings.repeats)
    for side in sides:
        if side != _THEIRS:
            yield versus(timings, side, [_THEIRS]).ratio(
                f"step, {side} / dense in PyTorch ({model}, wider: {wider}, batch {batch})",
                settings.repeats,
            )


def small_nets(settings: Settings) -> Iterator[Ratio | str]:
    """A sparse training step of small networks against the same dense step, PyTorch's and ours."""
    for name, shape, default, limits in _SMALL_NETS:
        model, batch = settings.tiny(name), settings.batch_or(default)
        sides = {
            "sparse": Step(model, batch, 0.8, shape=shape),
            _LOOP: Step(model, batch, 0.8, "auto", shape),
            **_dense_steps(model, batch, shape),
        }
        timings = interleave(sides, settings.repeats)
        about = f"{model}, batch {batch}, S=0.8"
        limit = NO_LIMITS if limits is None else limits.here
        given = (settings.repeats, 1.0, limit)
        yield from _beside_dense(timings, "sparse", "sparse step / dense step", about, *given)
        what, about = f"sparse step {_LOOP} / dense step", f"{about}, backend auto"
        yield next(_beside_dense(timings, _LOOP, what, about, settings.repeats))


def _beside_dense(
    timings: Mapping[str, Timing],
    side: str,
    what: str,
    about: str,
    repeats: int,
    factor: float = 1.0,
    limits: Limits = NO_LIMITS,
) -> Iterator[Ratio]:
    """A side beside the dense one in PyTorch, for which the limits are, and beside our own."""
    for dense, where in ((_THEIRS, "in PyTorch"), (_OURS, "on our kernels")):
        name = f"{what} {where} ({about})"
        limit = limits if dense == _THEIRS else NO_LIMITS
        yield versus(timings, side, [dense]).ratio(name, repeats, limit, factor)


def _large(settings: Settings) -> tuple[str, int, int]:
    return settings.model_or("wrn-28-10"), settings.batch_or(64), settings.few_repeats


def _dense_steps(model: str, batch: int, shape: tuple[int, ...] = CIFAR) -> dict[str, Step]:
    ours = Step(model, batch, shape=shape, ours=True)
    return {_THEIRS: Step(model, batch, shape=shape), _OURS: ours}


def _our_dense(timings: Mapping[str, Timing], model: str, batch: int, repeats: int) -> Ratio:
    return versus(timings, _OURS, [_THEIRS]).ratio(
        f"training ONE dense model on our kernels / in PyTorch ({model}, batch {batch})",
        repeats,
        limits=_DENSE.here,
    )


def _steps(tickets: int) -> float:
    """How many times the steps: 150 epochs to explore and 100 for each ticket, against 250."""
    return (150 + 100 * tickets) / 250


def memory(settings: Settings) -> Iterator[Ratio | str]:
    """The peak memory of sparse training against that of dense training."""
    model, batch = settings.model_or("wrn-16-4"), settings.batch_or(64)
    found = {
        side: float(peak_memory(model, batch, sparsity, settings.threads))
        for side, sparsity in (("sparse", 0.8), (_THEIRS, 0.0))
    }
    value = found["sparse"] / found[_THEIRS]
    name = f"peak memory of sparse / of dense training in PyTorch ({model}, batch {batch}, S=0.8)"
    yield Ratio(name, value, value, bar=1.0, aim=0.8, seconds={}, repeats=1, memory=found)
