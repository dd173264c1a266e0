"""What members say of the samples of a data set: saved once, so that every number comes of it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import metrics
from .calibration import Temperature
from .data.npz import read_arrays
from .errors import FreeTicketsError, NewerFileError
from .reading import Allow, Count, Natural, damaged, read
from .seal import parse_json, stamp, unstamp
from .storage import write_atomic

SCORES = {"accuracy": metrics.accuracy, "nll": metrics.nll, "ece": metrics.ece}


REMAKE = "remove it, or make it again"  # a file of predictions that is damaged

# What the file of a kind of set must say of itself, beyond what all do.
_NEEDED = {
    "shift": ("parts",),
    "attack": ("parts", "epsilon"),
    "natural": ("classes_200",),
    "trajectory": ("run", "step", "epoch", "phase", "ticket", "collected"),
}


@dataclass(frozen=True)
class _Info:
    """The types of what files of predictions say of themselves; they may say more."""

    dataset: str
    combine: str
    kind: str | None = None
    method: str | None = None
    model: str | None = None
    settings: str | None = None
    tickets: str | None = None
    images: str | None = None
    temperature: Temperature | None = None
    samples: Natural | tuple[Natural, ...] | None = None
    parts: tuple[str, ...] | None = None
    source: str | None = None
    frost: str | None = None
    seed: Natural | None = None
    epsilon: float | None = None
    steps: Count | None = None
    classes_200: tuple[Natural, ...] | None = None
    run: Count | None = None
    step: Natural | None = None
    epoch: float | None = None
    phase: str | None = None
    ticket: Count | None = None
    collected: bool | None = None
    ticket_step: Natural | None = None

    def __post_init__(self) -> None:
        missing = [name for name in _NEEDED.get(self.kind or "", ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"it does not say its {', '.join(missing)}")
        if self.kind != "trajectory" and isinstance(self.samples, tuple):
            raise ValueError("samples must be a whole number")
        if self.kind == "shift" and not all(part.isdecimal() for part in self.parts or ()):
            raise ValueError("parts must be severities")
        if self.parts is not None and not self.parts:
            raise ValueError("parts without names")


@dataclass(frozen=True)
class Predictions:
    """What every member says of every sample of a data set.

    A file may hold several parts of equal length, one behind the other along N: the severities of a
    corruption, the members that an attack was made for, the checkpoints of a trajectory. Then
    `info["parts"]` names them.

    Attributes:
        log_probs: Log-probabilities (M, N, C) in float32, before any temperature.
        labels: The truth, (N,); -1 where there is none, as for samples of no class.
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
            info=np.array(json.dumps(stamp(self.info))),
        )
        write_atomic(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Reads what `save` wrote; nothing in the file can run code."""
        if not path.exists():
            raise FreeTicketsError(f"no predictions at {path}: run evaluate first")
        with damaged(path, REMAKE):
            log_probs, labels, text = read_arrays(path, "log_probs", "labels", "info")
            info = _parse_info(text)
            _check(log_probs, labels, len(info.get("parts") or "1"))
            return cls(log_probs, labels, info)

    @property
    def parts(self) -> list[Predictions]:
        """The parts of the file, in order; the whole, if it has none."""
        names = self.info.get("parts")
        if names is None:
            return [self]
        info = {key: value for key, value in self.info.items() if key != "parts"}
        log_probs = np.split(self.log_probs, len(names), axis=1)
        labels = np.split(self.labels, len(names))
        return [
            Predictions(logs, truth, {**info, "part": name})
            for name, logs, truth in zip(names, log_probs, labels, strict=True)
        ]

    def members(self) -> npt.NDArray[np.float64]:
        """Log-probabilities of the members (M, N, C), at their temperatures if they have some."""
        log_probs = self.log_probs.astype(np.float64)
        temperature = self._temperature
        return log_probs if temperature is None else temperature.scale_members(log_probs)

    def ensemble(self) -> npt.NDArray[np.float64]:
        """Log-probabilities of the ensemble as if it were one member, (1, N, C)."""
        combined = metrics.ensemble_log_probs(self.members(), self.info["combine"])
        temperature = self._temperature
        scaled = combined if temperature is None else temperature.scale_ensemble(combined)
        return scaled[None]

    @property
    def _temperature(self) -> Temperature | None:
        saved = self.info.get("temperature")
        return None if saved is None else Temperature.from_dict(saved)

    def scores(self) -> dict[str, Any]:
        """Scores of each member, of their mean and of the ensemble, with stable keys."""
        members = [_scores(member[None], self.labels) for member in self.members()]
        mean = {name: float(np.mean([member[name] for member in members])) for name in SCORES}
        scores = {
            "dataset": self.info["dataset"],
            "samples": len(self.labels),
            "members": members,
            "member_mean": mean,
            "ensemble": _scores(self.ensemble(), self.labels),
        }
        saved = self.info.get("temperature")
        return scores if saved is None else {**scores, "temperature": saved}

    def adjusted(self, members: Sequence[int], temperature: Temperature | None) -> Predictions:
        """Those of some members, at another temperature."""
        info = {key: value for key, value in self.info.items() if key != "temperature"}
        if temperature is not None:
            info["temperature"] = temperature.as_dict()
        return Predictions(self.log_probs[list(members)], self.labels, info)


def read_info(path: Path) -> dict[str, Any] | None:
    """What saved predictions say of themselves, without reading them; None if they can't."""
    try:
        (text,) = read_arrays(path, "info")
        return _parse_info(text)
    except NewerFileError as error:
        raise NewerFileError(f"{path} {error}") from error
    except (FreeTicketsError, ValueError):
        return None


def trajectory_files(folder: Path) -> list[Path]:
    """The checkpoints of a run's trajectory, in no certain order."""
    return list((folder / "trajectory").glob("[0-9]*-[0-9]*.npz"))


def trajectory_file(folder: Path, run: int, step: int) -> Path:
    """Where a run folder keeps the predictions of one."""
    return folder / "trajectory" / f"{run}-{step}.npz"


def _parse_info(text: Any) -> dict[str, Any]:
    info = parse_json(str(text))
    read(_Info, info, allow=Allow.RECORD)
    return unstamp(info)


def _check(log_probs: npt.NDArray[Any], labels: npt.NDArray[Any], parts: int) -> None:
    if log_probs.ndim != 3 or labels.shape != log_probs.shape[1:2]:
        raise ValueError(f"predictions {log_probs.shape} of labels {labels.shape}")
    if log_probs.dtype.kind != "f" or labels.dtype.kind not in "iu":
        raise ValueError(f"predictions are {log_probs.dtype}, labels {labels.dtype}")
    if not (log_probs < np.inf).all():  # minus infinity is what a class may get
        raise ValueError("log-probabilities that are not numbers")
    if labels.size and not -1 <= labels.min() <= labels.max() < log_probs.shape[2]:
        raise ValueError(f"labels from {labels.min()} to {labels.max()}")
    if len(labels) % parts:
        raise ValueError(f"{len(labels)} samples in {parts} parts")


def _scores(log_probs: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> dict[str, float]:
    return {name: score(log_probs, labels) for name, score in SCORES.items()}
