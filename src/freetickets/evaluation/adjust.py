"""Choosing members and fitting a temperature on the data that a run's training held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import data
from ..calibration import check_scope
from ..config import read_run_config
from ..data.loading import load_validation
from ..ensemble import Ensemble
from ..errors import FreeTicketsError


def adjust(
    folder: Path,
    ensemble: Ensemble,
    data_dir: str | None = None,
    batch_size: int = 256,
    *,
    size: int | None = None,
    scope: str | None = None,
) -> Ensemble:
    """Chooses members and fits a temperature on the data that a run's training held out.

    Args:
        folder: The run's, whose settings say which data that is.
        ensemble: What the run trained.
        data_dir: Where data sets lie.
        batch_size: Samples that are predicted at a time.
        size: How many members to choose; None for all.
        scope: What gets a temperature, "ensemble" or "members"; None for neither.
    """
    if scope is not None:
        check_scope(scope)
    settings = folder / "config.yaml"
    if not settings.exists():
        raise FreeTicketsError(
            f"{folder} has no config.yaml to say which data its training held out: give the folder "
            "that train saved in"
        )
    config = read_run_config(folder)
    if not config.validation and config.validation_data is None:
        raise FreeTicketsError(
            f"{folder} held no data out to choose members or fit a temperature on: train it with "
            "--validation 0.1 or --validation-data"
        )
    name, size_of_images = str(ensemble.info["dataset"]), ensemble.info.get("image_size")
    spec = data.get_spec(name, data_dir, size_of_images, ensemble.task)
    held_out: data.Split | data.LazySplit | None
    if config.validation_data is not None:
        held_out = load_validation(config.validation_data, spec, data_dir)
    else:
        _, held_out = data.hold_out(data.load(spec, "train", data_dir), config.validation or 0.0)
    assert held_out is not None
    adjusted = ensemble.compile()
    if size is not None:
        adjusted = adjusted.select(held_out, held_out.labels, size, batch_size)
    if scope is not None:
        adjusted = adjusted.calibrate(held_out, held_out.labels, scope, batch_size)
    return adjusted


def describe_adjustment(adjusted: Ensemble, ensemble: Ensemble) -> dict[str, Any]:
    """What `adjust` did to an ensemble: the members it chose, counted from 1, and a temperature."""
    temperature = adjusted.temperature
    return {
        "chosen": [place + 1 for place in _places(adjusted, ensemble)],
        "temperature": None if temperature is None else temperature.as_dict(),
    }


def _places(part: Ensemble, whole: Ensemble) -> list[int]:
    """Where the members of a part are in the whole."""
    if len(whole) > len(whole.tickets):
        return list(range(len(whole)))  # in one network: they can't be parted
    places = {id(ticket): place for place, ticket in enumerate(whole.tickets)}
    return [places[id(ticket)] for ticket in part.tickets]
