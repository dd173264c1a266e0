"""From an ensemble and a data set to saved predictions, and from those to scores."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import data, metrics
from .data.npz import read_arrays
from .ensemble import Ensemble
from .errors import FreeTicketsError
from .storage import DamagedFileError, write_atomic, write_json

SCORES = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}


@dataclass(frozen=True)
class Predictions:
    """What every member says of every sample of a data set.

    Attributes:
        log_probs: Log-probabilities (M, N, C) in float32.
        labels: The truth, (N,).
        info: What made them: data set, method, model.
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
        members = [_scores(member[None], self.labels) for member in self.log_probs]
        mean = {name: float(np.mean([member[name] for member in members])) for name in SCORES}
        combined = metrics.ensemble_log_probs(self.log_probs, self.info["combine"])
        return {
            "dataset": self.info["dataset"],
            "samples": len(self.labels),
            "members": members,
            "member_mean": mean,
            "ensemble": _scores(combined[None], self.labels),
        }


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
    log_probs = ensemble.compile(batch_size).member_log_proba(split, batch_size)
    info = {
        "dataset": spec.name,
        "split": "test",
        **{key: ensemble.info.get(key) for key in ("method", "model", "combine", "sparsity")},
    }
    return Predictions(log_probs.astype(np.float32), split.labels.numpy(), info)


def evaluate_run(
    folder: Path, ensemble: Ensemble, data_dir: str | None = None, batch_size: int = 256
) -> dict[str, Any]:
    """Predicts a run's test set, saves the predictions and their scores, and returns the scores."""
    name = str(ensemble.info["dataset"])
    predictions = predict_dataset(ensemble, name, data_dir, batch_size)
    predictions.save(folder / "predictions" / f"{Path(name).stem}.npz")
    scores = predictions.scores()
    write_json(folder / "metrics.json", scores)
    return scores


def describe_run(config: Mapping[str, Any]) -> str:
    """A run in a few words, for tables.

    Example:
        >>> describe_run({"method": "edst", "options": {"tickets": 3, "sparsity": 0.8}})
        'edst (M=3, S=0.8)'
    """
    options = config.get("options", {})
    parts = [f"M={options['tickets']}"] if options.get("tickets", 1) > 1 else []
    if "sparsity" in options:
        parts.append(f"S={options['sparsity']:g}")
    return f"{config['method']} ({', '.join(parts)})" if parts else str(config["method"])
