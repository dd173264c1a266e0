"""Sparse training beside dense training: whole steps, and what masks and exploration cost."""

from collections.abc import Iterator
from itertools import chain, count

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
    Sides,
    compare,
    interleave,
    median,
    ratio,
    versus,
)

# Tickets, sparsity, and what the whole training may and should take beside one dense model's in
# PyTorch.
_ENSEMBLES = (
    (3, 0.8, Bars((0.62, 0.50), (0.56, 0.48))),
    (7, 0.9, Bars((0.80, 0.68), (0.66, 0.58))),
)
_DENSE = Bars((0.55, 0.40), (0.60, 0.45))
_GREY = (1, 28, 28)
_IN_A_ROW = 0.05  # seconds
# Network, input, batch, and what its sparse step may and should take beside PyTorch's dense one.
_SMALL_NETS: tuple[tuple[str, tuple[int, ...], int, Bars], ...] = (
    ("wrn-16-2", CIFAR, 64, Bars((0.48, 0.36), (0.45, 0.35))),
    ("fast-64-128-128", CIFAR, 128, Bars((0.45, 0.35), (0.45, 0.35))),
    ("cnn", _GREY, 64, Bars((0.40, 0.32), (0.40, 0.32))),
    ("mlp-512-512", _GREY, 128, Bars((0.55, 0.40), (0.55, 0.40))),
    ("mlp-1024-1024", _GREY, 128, Bars((0.45, 0.33), (0.45, 0.33))),
)
# Distributions and sparsities of the figure.
_POINTS = (("erk", 0.8), ("erk", 0.9), ("erk", 0.95), ("uniform", 0.8), ("uniform", 0.9))
_THEIRS, _OURS = "dense in PyTorch", "our dense"
_ROUNDS = 7  # of what claims are judged by: their spread is the noise
_LOOP = "in a loop of one's own"  # where layers keep their parameters: backend="auto"


def masks(settings: Settings) -> Iterator[Ratio | str]:
    """A masked training step against the same dense step."""
    model, batch = settings.tiny("wrn-16-4"), settings.batch_or(64)
    yield ratio(
        f"masked step / dense step, both in PyTorch ({model}, batch {batch}, S=0.8)",
        {"masked": Step(model, batch, 0.8, "masked"), _THEIRS: Step(model, batch)},
        settings.repeats,
        bar=1.05,
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
        {"exploration": lambda: sparsifier.explore(0.5), _THEIRS: Step(model, batch)},
        settings.few_repeats,
        bar=0.1,
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
        {"batch": lambda: next(stream), _THEIRS: Step(model, batch)},
        settings.repeats,
        bar=0.05,
    )


def edst(settings: Settings) -> Iterator[Ratio | str]:
    """The training of a whole EDST ensemble against that of one dense model, PyTorch's and ours."""
    model, batch = settings.model_or("wrn-28-10"), settings.batch_or(64)
    sides = {f"sparse step S={s}": Step(model, batch, s) for _, s, _ in _ENSEMBLES}
    loop = {_LOOP: Step(model, batch, _ENSEMBLES[0][1], "auto")}
    timings = interleave({**sides, **loop, **_dense_steps(model, batch)}, settings.few_repeats)
    yield _our_dense(timings, model, batch)
    for side, (tickets, sparsity, limits) in zip(sides, _ENSEMBLES, strict=True):
        steps, about = _steps(tickets), f"{model}, batch {batch}, S={sparsity}"
        what = f"training a whole EDST ensemble of {tickets} ({steps:g} x the steps)"
        what += " / ONE dense model"
        yield from _beside_dense(timings, side, what, about, steps, limits.here)
    tickets, sparsity, _ = _ENSEMBLES[0]
    what = f"training a whole EDST ensemble of {tickets} {_LOOP} / ONE dense model"
    about = f"{model}, batch {batch}, S={sparsity}, backend auto"
    yield next(_beside_dense(timings, _LOOP, what, about, _steps(tickets)))  # beside PyTorch's


def sparsity(settings: Settings) -> Iterator[Ratio | str]:
    """The same for three tickets, against sparsity: with it, all that one ensemble costs falls."""
    model, batch = settings.model_or("wrn-28-10"), settings.batch_or(64)
    sides = {
        f"{distribution} S={sparsity}": Step(model, batch, sparsity, distribution=distribution)
        for distribution, sparsity in _POINTS
    }
    timings = interleave({**sides, **_dense_steps(model, batch)}, settings.few_repeats)
    yield Point(**vars(_our_dense(timings, model, batch)), curve=ONE_DENSE, sparsity=0.0)
    what = "training a whole EDST ensemble of 3 / ONE dense model"
    for name, (distribution, sparsity) in zip(sides, _POINTS, strict=True):
        about = f"{model}, batch {batch}, {distribution}, S={sparsity}"
        row, of_ours = _beside_dense(timings, name, what, about, _steps(3))
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
    each = max(1, settings.repeats // _ROUNDS)
    rounds = [interleave(sides, each) for _ in range(_ROUNDS)]
    for side in list(sides)[1:]:
        about = f"({model}, wider: {wider}, batch {batch})"
        pairs = [versus(timings, side, [_THEIRS]) for timings in rounds]
        yield compare(f"step, {side} / dense in PyTorch {about}", median(pairs))
        sides_of_rounds = (pair.values() for pair in pairs)
        told = (f"{mine.median / theirs.median:.4f}" for mine, theirs in sides_of_rounds)
        yield f"in rounds of {each}: [{', '.join(told)}]"


def small_nets(settings: Settings) -> Iterator[Ratio | str]:
    """A sparse training step of small networks against the same dense step, PyTorch's and ours."""
    for name, shape, default, limits in _SMALL_NETS:
        model, batch = settings.tiny(name), settings.batch_or(default)
        sides = {
            "sparse": Step(model, batch, 0.8, shape=shape),
            _LOOP: Step(model, batch, 0.8, "auto", shape),
            **_dense_steps(model, batch, shape),
        }
        # In a row, as a training takes them: alone, a short step finds caches full of the others'.
        timings = interleave(sides, settings.repeats, least=_IN_A_ROW)
        about, what = f"{model}, batch {batch}, S=0.8", "sparse step / dense step"
        yield from _beside_dense(timings, "sparse", what, about, limits=limits.here)
        what = f"sparse step {_LOOP} / dense step"
        yield next(_beside_dense(timings, _LOOP, what, f"{about}, backend auto"))


def _beside_dense(
    timings: Sides, side: str, what: str, about: str, factor: float = 1.0,
    limits: Limits = NO_LIMITS,
) -> Iterator[Ratio]:  # fmt: skip
    """A side beside the dense one in PyTorch, for which the limits are, and beside our own."""
    others = ("in PyTorch", _THEIRS, limits), ("on our kernels", _OURS, NO_LIMITS)
    for where, other, own in others:
        yield compare(f"{what} {where} ({about})", versus(timings, side, [other]), own, factor)


def _dense_steps(model: str, batch: int, shape: tuple[int, ...] = CIFAR) -> dict[str, Step]:
    ours = Step(model, batch, shape=shape, ours=True)
    return {_THEIRS: Step(model, batch, shape=shape), _OURS: ours}


def _our_dense(timings: Sides, model: str, batch: int) -> Ratio:
    name = f"training ONE dense model on our kernels / in PyTorch ({model}, batch {batch})"
    return compare(name, versus(timings, _OURS, [_THEIRS]), _DENSE.here)


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
