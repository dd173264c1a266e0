"""From an ensemble and a data set to saved predictions, and from those to scores."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import data, metrics
from .calibration import Temperature, check_scope
from .config import Config, read_config
from .data.npz import read_arrays
from .ensemble import Ensemble
from .errors import FreeTicketsError
from .storage import DamagedFileError, write_atomic, write_json

# What methods call the number of their members.
_MEMBERS = ("tickets", "members", "passes")

SCORES = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}


@dataclass(frozen=True)
class Predictions:
    """What every member says of every sample of a data set.

    Attributes:
        log_probs: Log-probabilities (M, N, C) in float32, before any temperature.
        labels: The truth, (N,).
        info: What made them: data set, method, model; and the ensemble's temperature, if any.
    """

    log_probs: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    info: dict[str, Any]

    def save(self, path: Path) -> None:
        """Writes them as a compressed .npz."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            log_probs=self.log_probs,
            labels=self.labels,
            info=np.array(json.dumps(self.info)),
        )
        write_atomic(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Reads what `save` wrote; nothing in the file can run code."""
        if not path.exists():
            raise FreeTicketsError(f"no predictions at {path}: run evaluate first")
        log_probs, labels, info = read_arrays(path, "log_probs", "labels", "info")
        try:
            return cls(log_probs, labels, json.loads(str(info)))
        except ValueError as error:
            raise DamagedFileError(f"{path} is damaged: {error}") from error

    def scores(self) -> dict[str, Any]:
        """Scores of each member, of their mean and of the ensemble, with stable keys."""
        log_probs = self.log_probs.astype(np.float64)
        saved = self.info.get("temperature")
        temperature = None if saved is None else Temperature.from_dict(saved)
        if temperature is not None:
            log_probs = temperature.scale_members(log_probs)
        members = [_scores(member[None], self.labels) for member in log_probs]
        mean = {name: float(np.mean([member[name] for member in members])) for name in SCORES}
        combined = metrics.ensemble_log_probs(log_probs, self.info["combine"])
        if temperature is not None:
            combined = temperature.scale_ensemble(combined)
        scores = {
            "dataset": self.info["dataset"],
            "samples": len(self.labels),
            "members": members,
            "member_mean": mean,
            "ensemble": _scores(combined[None], self.labels),
        }
        return scores if saved is None else {**scores, "temperature": saved}

    def adjusted(self, members: Sequence[int], temperature: Temperature | None) -> Predictions:
        """Those of some members, at another temperature."""
        info = {key: value for key, value in self.info.items() if key != "temperature"}
        if temperature is not None:
            info["temperature"] = temperature.as_dict()
        return Predictions(self.log_probs[list(members)], self.labels, info)


def _scores(log_probs: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> dict[str, float]:
    return {name: score(log_probs, labels) for name, score in SCORES.items()}


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
