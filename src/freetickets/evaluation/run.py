"""Evaluating a run: predictions of its test set, saved, and their scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import data
from ..calibration import check_scope
from ..config import Config, read_config
from ..ensemble import Ensemble
from ..errors import FreeTicketsError
from ..storage import write_json
from .predictions import Predictions

# What methods call the number of their members.
_MEMBERS = ("tickets", "members", "passes")


def predict_dataset(
    ensemble: Ensemble, name: str, data_dir: str | None = None, batch_size: int = 256
) -> Predictions:
    """Predicts the test split of a data set."""
    spec = data.get_spec(name, data_dir, ensemble.info.get("image_size"))
    if tuple(spec.classes) != ensemble.classes:
        raise FreeTicketsError(
            f"{name} has other classes than the ensemble was trained on ({len(spec.classes)} and "
            f"{len(ensemble.classes)}): evaluate it on its own data set"
        )
    split = data.load(spec, "test", data_dir)
    unscaled = ensemble.compile(batch_size).with_temperature(None)
    log_probs = unscaled.member_log_proba(split, batch_size)
    info = {
        "dataset": spec.name,
        "split": "test",
        **{key: ensemble.info.get(key) for key in ("method", "model", "combine", "sparsity")},
    }
    predictions = Predictions(log_probs.astype(np.float32), split.labels.numpy(), info)
    return predictions.adjusted(range(len(ensemble)), ensemble.temperature)


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
    share = Config(**read_config(settings)).validation
    if not share:
        raise FreeTicketsError(
            f"{folder} held no data out to choose members or fit a temperature on: train it with "
            "--validation 0.1"
        )
    spec = data.get_spec(str(ensemble.info["dataset"]), data_dir, ensemble.info.get("image_size"))
    _, held_out = data.hold_out(data.load(spec, "train", data_dir), share)
    assert held_out is not None
    adjusted = ensemble.compile(batch_size)
    if size is not None:
        adjusted = adjusted.select(held_out, held_out.labels, size, batch_size)
    if scope is not None:
        adjusted = adjusted.calibrate(held_out, held_out.labels, scope, batch_size)
    return adjusted


def evaluate_run(
    folder: Path,
    ensemble: Ensemble,
    data_dir: str | None = None,
    batch_size: int = 256,
    adjusted: Ensemble | None = None,
) -> dict[str, Any]:
    """Predicts a run's test set, saves the predictions and their scores, and returns the scores.

    What `adjust` returned is scored beside the ensemble, under a key of its own.
    """
    name = str(ensemble.info["dataset"])
    predictions = predict_dataset(ensemble, name, data_dir, batch_size)
    predictions.save(folder / "predictions" / f"{Path(name).stem}.npz")
    scores = predictions.scores()
    if adjusted is not None:
        chosen = _places(adjusted, ensemble)
        others = predictions.adjusted(chosen, adjusted.temperature).scores()
        scores["adjusted"] = {
            "chosen": [place + 1 for place in chosen],  # as files and tables count
            "temperature": None,
            **{key: value for key, value in others.items() if key not in ("dataset", "samples")},
        }
    write_json(folder / "metrics.json", scores)
    return scores


def _places(part: Ensemble, whole: Ensemble) -> list[int]:
    """Where the members of a part are in the whole."""
    if len(whole) > len(whole.tickets):
        return list(range(len(whole)))  # in one network: they can't be parted
    places = {id(ticket): place for place, ticket in enumerate(whole.tickets)}
    return [places[id(ticket)] for ticket in part.tickets]


def describe_run(config: Mapping[str, Any]) -> str:
    """A run in a few words, for tables.

    Example:
        >>> describe_run({"method": "edst", "options": {"tickets": 3, "sparsity": 0.8}})
        'edst (M=3, S=0.8)'
    """
    options = config.get("options", {})
    members = next((options[key] for key in _MEMBERS if key in options), 1)
    parts = [f"M={members}"] if members > 1 else []
    if "sparsity" in options:
        parts.append(f"S={options['sparsity']:g}")
    return f"{config['method']} ({', '.join(parts)})" if parts else str(config["method"])
