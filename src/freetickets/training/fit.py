"""`Method.fit`: a whole ensemble in one call, for people who write Python."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from .. import data
from ..config import Config
from ..data import DatasetSpec, LazySplit, Split
from ..ensemble import Ensemble
from ..errors import FreeTicketsError, UnknownNameError
from ..lock import hold
from ..methods import Method
from .job import Job
from .parallel import rank
from .progress import Reporter

# What `fit` is told by keyword; its other arguments stand for the rest of a Config.
_SETTINGS = sorted(
    {f.name for f in fields(Config)} - {"method", "options", "dataset", "model", "output"}
)


def fit(
    method: Method,
    model: str | nn.Module | Callable[[], nn.Module],
    train_data: Any,
    *,
    quiet: bool = False,
    output: str | Path | None = None,
    **settings: Any,
) -> Ensemble:
    """Trains a method and returns its ensemble.

    Args:
        method: Such as `EDST(tickets=3, sparsity=0.8)`.
        model: A name such as "wrn-28-10", a factory that returns a new network, or a network. A
            network is not touched, a copy is trained; where a method trains several, each copy is
            initialised anew.
        train_data: The name of a data set, a pair of arrays (inputs, labels), or a map-style
            `torch.utils.data.Dataset` of such pairs.
        quiet: Show no progress.
        output: A folder for tickets, log and checkpoints; a stopped run is resumed from there.
        **settings: Any field of `freetickets.config.Config`: epochs, batch_size, lr, seed, ...

    Example:
        >>> x, y = torch.randn(64, 20), torch.arange(64) % 2
        >>> from freetickets import EDST
        >>> ensemble = EDST(tickets=2, interval=2).fit("mlp-32", (x, y), epochs=4, quiet=True)
        >>> ensemble.predict_proba(x).shape, ensemble.member_proba(x).shape
        ((64, 2), (2, 64, 2))
    """
    for name in settings:
        if name not in _SETTINGS:
            raise UnknownNameError("setting of fit", name, _SETTINGS)
    spec, load = _training_data(train_data, settings.get("data_dir"), settings.get("image_size"))
    config = Config(
        method=method.name,
        options=asdict(method),
        dataset=spec.name,
        model=model if isinstance(model, str) else "",
        output=str(output) if output is not None else None,
        **settings,
    ).resolved(spec)
    job = Job(config, spec, load)
    if isinstance(model, nn.Module):
        several = len(job.plan.runs) > 1
        if several:
            _check_resettable(model)
        job.model = _factory(model, anew=several)
    elif not isinstance(model, str):
        _check_factory(model)
        job.model = model
    reporter = Reporter(quiet)
    held = hold(output, reporter.line) if output is not None and rank() == 0 else nullcontext()
    with held:
        return Ensemble(job.train(reporter), job.model)


def _training_data(
    train_data: Any, data_dir: str | None, image_size: int | None
) -> tuple[DatasetSpec, Callable[[], Split | LazySplit]]:
    if isinstance(train_data, str):
        spec = data.get_spec(train_data, data_dir, image_size)
        return spec, lambda: data.load(spec, "train", data_dir)
    if isinstance(train_data, Split):
        split = train_data
    elif isinstance(train_data, (tuple, list)) and len(train_data) == 2:
        split = data.arrays(*train_data)
    elif isinstance(train_data, Dataset) and hasattr(train_data, "__len__"):
        samples = [train_data[i] for i in range(len(train_data))]
        inputs = torch.stack([torch.as_tensor(sample[0]) for sample in samples])
        split = data.arrays(inputs, torch.tensor([int(sample[1]) for sample in samples]))
    else:
        raise FreeTicketsError(
            "train_data must be a data set's name, a pair of arrays (inputs, labels), or a torch "
            f"Dataset with a length, not a {type(train_data).__name__}"
        )
    return _describe(split), lambda: split


def _describe(split: Split) -> DatasetSpec:
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    if split.inputs.dtype == torch.uint8:
        channels = [_mean_and_deviation(split.inputs[:, c]) for c in range(split.inputs.shape[1])]
        mean, std = tuple(m for m, _ in channels), tuple(max(s, 1e-3) for _, s in channels)
    # Named after what they hold: a run must not be resumed with other arrays.
    content = hashlib.sha256(split.inputs.contiguous().numpy().data)
    content.update(split.labels.contiguous().numpy().data)
    return DatasetSpec(
        name=f"arrays-{content.hexdigest()[:8]}",
        description="your own arrays",
        classes=tuple(str(label) for label in range(int(split.labels.max()) + 1)),
        shape=tuple(split.inputs.shape[1:]),  # type: ignore[arg-type]
        train_size=len(split),
        test_size=0,
        mean=mean,
        std=std,
        augmentation="none",
        recipe="small",
        source="given in Python",
    )


def _mean_and_deviation(pixels: torch.Tensor) -> tuple[float, float]:
    """Of values in 0 to 255, as shares; counted, not converted, as large sets would not fit."""
    values = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    mean = float((counts * values).sum() / counts.sum())
    return mean, float((counts * (values - mean) ** 2).sum() / (counts.sum() - 1)) ** 0.5


def _factory(model: nn.Module, anew: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        network = copy.deepcopy(model)
        for module in network.modules() if anew else ():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        return network

    return build


def _check_factory(model: Any) -> None:
    if not callable(model):
        raise FreeTicketsError(
            "model must be a name, an nn.Module, or a function that returns one, not a "
            f"{type(model).__name__}"
        )
    with torch.random.fork_rng(devices=[]):
        if model() is model():
            raise FreeTicketsError(
                "the factory returns the same network each time: let it make a new one, such as "
                "`lambda: MyNet()`"
            )


def _check_resettable(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if list(module.parameters(recurse=False)) and not hasattr(module, "reset_parameters"):
            raise FreeTicketsError(
                f"this method trains several networks, and {name or 'the model'!r} can't be "
                "initialised anew: pass a factory, such as `lambda: MyNet()`"
            )
