"""`Method.fit`: a whole ensemble in one call, for people who write Python."""

import copy
import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import nn

from ..config import Config
from ..data.loading import take_as_numbers, training_data
from ..data.loading import validation_data as find_validation_data
from ..ensemble import Ensemble
from ..errors import FreeTicketsError, check_known
from ..lock import hold
from ..methods import Method, method_name
from ..tasks import Task, make_task, task_name
from .job import Job
from .parallel import rank
from .progress import Reporter

# What `fit` is told by keyword; its other arguments stand for the rest of a Config.
_SETTINGS = sorted(
    {f.name for f in fields(Config)}
    - {"method", "options", "dataset", "validation_data", "model", "output", "task", "task_options"}
)


def _name_settings(function: Callable[..., Ensemble]) -> Callable[..., Ensemble]:
    signature, hints = inspect.signature(function), get_type_hints(Config)
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    defaults = {each.name: each.default for each in fields(Config)}
    by_keyword = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
    settings = [by_keyword(n, default=defaults[n], annotation=hints[n]) for n in _SETTINGS]
    vars(function)["__signature__"] = signature.replace(parameters=own + settings)
    return function


@_name_settings  # for help and completion
def fit(
    method: Method, model: str | nn.Module | Callable[[], nn.Module], train_data: Any, *,
    validation_data: Any = None, task: Task | str = "classification", quiet: bool = False,
    output: str | Path | None = None, **settings: Any,
) -> Ensemble:  # fmt: skip
    """Trains a method and returns its ensemble.

    Args:
        method: Such as `EDST(tickets=3, sparsity=0.8)`.
        model: A name such as "wrn-28-10", a factory that returns a new network, or a network. A
            network is not touched, a copy is trained; where a method trains several, each copy is
            initialised again.
        train_data: The name of a data set; a pair (inputs, labels) of arrays, tensors or data
            frames; or a map-style `torch.utils.data.Dataset` of such pairs, which is read again in
            each epoch. Inputs are uint8 images, numbers, or integers for networks with an
            embedding; labels are integers, booleans or strings, or what else the task takes.
        validation_data: Validation data of your own, in any of these forms, for samples that come
            in groups or in time; otherwise `validation` holds out a random share. A string is a
            folder `<class>/*` of images or an .npz file with x and y.
        task: What is learned, such as `Classification(class_weights=[1, 3])`; by default
            "classification". See `freetickets.tasks`.
        quiet: Show no progress.
        output: A folder for tickets, log and checkpoints; a stopped run is resumed from there.
        **settings: Any field of `freetickets.config.Config`: epochs, batch_size, lr, seed, ...
            What is not given comes from a recipe: for a data set by name its own (`cifar` follows
            the paper), for arrays and a `Dataset` the recipe `small`: 36 epochs for three tickets,
            a batch of 64, no augmentation (docs/methods.md).

    Example:
        >>> x, y = torch.randn(64, 20), torch.arange(64) % 2
        >>> from freetickets import EDST
        >>> ensemble = EDST(tickets=2).fit("mlp-32", (x, y), epochs=4, batch_size=8, quiet=True)
        >>> ensemble.predict_proba(x).shape, ensemble.member_proba(x).shape
        ((64, 2), (2, 64, 2))
    """
    for name in settings:
        check_known("setting of fit", name, _SETTINGS)
    data_dir, workers = settings.get("data_dir"), settings.get("workers", 0)
    task = make_task(task) if isinstance(task, str) else task
    spec, load = training_data(train_data, data_dir, settings.get("image_size"), workers, task)
    own = None  # a name, and what reads it
    if validation_data is not None:
        own = find_validation_data(validation_data, spec, data_dir, workers)
    config = Config(
        method=method_name(method), options=asdict(method), dataset=spec.name,
        validation_data=own and own[0], model=model if isinstance(model, str) else "",
        output=str(output) if output is not None else None, task=task_name(task),
        task_options=task.options, **settings,
    ).resolved(spec, method)  # fmt: skip
    job = Job(config, spec, load, load_own_validation=own and own[1], own_method=method)
    if isinstance(model, nn.Module):
        job.model = _factory(model, anew=len(job.plan.runs) > 1)
    elif not isinstance(model, str):
        if not callable(model):
            kind = type(model).__name__
            raise FreeTicketsError(
                f"model must be a name, an nn.Module, or a function that returns one, not a {kind}"
            )
        with torch.random.fork_rng(devices=[]):
            if model() is model():
                raise FreeTicketsError(
                    "the factory gives the same network each time: make new ones"
                )
        job.model = model
    if spec.integers and not job.has_embedding:  # the integers of a table are numbers
        job.spec, job.load = replace(spec, integers=False), lambda: take_as_numbers(load())
        if own is not None:
            job.load_own_validation = lambda: take_as_numbers(own[1]())
    reporter = Reporter(quiet)
    with hold(output, reporter.line) if output is not None and rank() == 0 else nullcontext():
        return Ensemble(job.train(reporter), job.model, task=job.task, method=method)


def _factory(model: nn.Module, anew: bool) -> Callable[[], nn.Module]:
    for name, module in model.named_modules() if anew else ():
        if list(module.parameters(recurse=False)) and not hasattr(module, "reset_parameters"):
            raise FreeTicketsError(
                f"this method trains several networks, but {name or 'the model'!r} can't be "
                "initialised again: pass a factory, such as `lambda: MyNet()`"
            )

    def build() -> nn.Module:
        network = copy.deepcopy(model)
        for module in network.modules() if anew else ():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
        return network

    return build
