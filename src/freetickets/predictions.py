"""What members say of the samples of a data set: saved once, so that every number comes of it."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .calibration import Temperature
from .data.npz import read_arrays, read_headers
from .errors import FreeTicketsError, NewerFileError
from .reading import Allow, Count, Natural, damaged, read_fields, types_of
from .seal import parse_json, stamp, unstamp
from .storage import write_atomic
from .tasks import CLASSIFICATION, Task, stored_task

_LOG_PROBS = "log_probs"

REMAKE = "remove it, or make it again"  # a file of predictions that is damaged

# What files of predictions say of themselves, by type; they may say more.
_INFO = {str: "dataset combine"}
_INFO_OR_NONE = {
    str: "task kind method model settings tickets images source frost phase",
    Natural: "samples seed step ticket_step", Count: "steps run ticket", float: "epsilon epoch",
    bool: "collected", tuple[str, ...]: "parts", tuple[Natural, ...]: "classes_200",
    Temperature: "temperature",
}  # fmt: skip
# What the file of a kind of set must say, beyond what all do.
_NEEDED = {
    "shift": ("parts",),
    "attack": ("parts", "epsilon"),
    "natural": ("classes_200",),
    "trajectory": ("run", "step", "epoch", "phase", "ticket", "collected"),
}


@dataclass(frozen=True)
class Predictions:
    """What every member says of every sample of a data set.

    A file may hold several parts of equal length, one behind the other along N: the severities of a
    corruption, the members that an attack was made for, the checkpoints of a trajectory. Then
    `info["parts"]` names them.

    Attributes:
        outputs: What the members say, (M, N, ...), in float32: log-probabilities (M, N, C) before
            any temperature, or what else the task stores.
        labels: The truth, (N, ...); -1 where there is none, as for samples of no class.
        info: What made them: data set, method, model; and the ensemble's temperature, if any.
        task: What they are for.
    """

    outputs: npt.NDArray[np.float32]
    labels: npt.NDArray[Any]
    info: dict[str, Any]
    task: Task = CLASSIFICATION

    def save(self, path: Path) -> None:
        """Writes them as a compressed .npz."""
        buffer = io.BytesIO()
        info = np.array(json.dumps(stamp(self.info)))
        outputs: dict[str, Any] = {_array_name(self.task): self.outputs}
        np.savez_compressed(buffer, **outputs, labels=self.labels, info=info)
        write_atomic(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path, task: Task | str | None = None) -> "Predictions":
        """Reads what `save` wrote, of a task of the user's own too; no file can run code."""
        if not path.exists():
            raise FreeTicketsError(f"no predictions at {path}: run evaluate first")
        with damaged(path, REMAKE):
            (text,) = read_arrays(path, "info")
            info = _parse_info(text)
            if task is None and _LOG_PROBS in read_headers(path):
                task = CLASSIFICATION  # log-probabilities are that, whatever task has stored them
            known = stored_task(info, task)
            outputs, labels = read_arrays(path, _array_name(known), "labels")
            known.check_saved(outputs, labels)
            parts = len(info.get("parts") or "1")
            if len(labels) % parts:
                raise ValueError(f"{len(labels)} samples in {parts} parts")
            return cls(outputs, labels, info, known)

    @property
    def parts(self) -> list["Predictions"]:
        """The parts of the file, in order; the whole, if it has none."""
        names = self.info.get("parts")
        if names is None:
            return [self]
        info = {key: value for key, value in self.info.items() if key != "parts"}
        pieces = np.split(self.outputs, len(names), axis=1), np.split(self.labels, len(names))
        return [
            Predictions(outputs, labels, {**info, "part": name}, self.task)
            for name, outputs, labels in zip(names, *pieces, strict=True)
        ]

    def members(self) -> npt.NDArray[np.float64]:
        """What the members say, (M, N, ...), at their temperatures if they have some."""
        outputs, found = self.outputs.astype(np.float64), self._temperature
        return outputs if found is None else found.scale_members(outputs)

    def ensemble(self) -> npt.NDArray[np.float64]:
        """What the ensemble says, as if it were one member, (1, N, ...)."""
        said, found = self.task.joined(self.members(), self.info["combine"]), self._temperature
        return (said if found is None else found.scale_ensemble(said))[None]

    @property
    def _temperature(self) -> Temperature | None:
        saved = self.info.get("temperature")
        return None if saved is None else Temperature.from_dict(saved)

    def scores(self) -> dict[str, Any]:
        """Scores of each member, of their mean and of the ensemble, with stable keys."""
        measure = self.task.measure
        members = [measure(member[None], self.labels) for member in self.members()]
        mean = {key: float(np.mean([member[key] for member in members])) for key in members[0]}
        scores = {
            "dataset": self.info["dataset"], "samples": len(self.labels), "members": members,
            "member_mean": mean, "ensemble": measure(self.ensemble(), self.labels),
        }  # fmt: skip
        saved = self.info.get("temperature")
        return scores if saved is None else {**scores, "temperature": saved}

    def adjusted(self, members: Sequence[int], temperature: Temperature | None) -> "Predictions":
        """Those of some members, at another temperature."""
        info = {key: value for key, value in self.info.items() if key != "temperature"}
        if temperature is not None:
            info["temperature"] = temperature.as_dict()
        return Predictions(self.outputs[list(members)], self.labels, info, self.task)


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
    types = types_of(_INFO, _INFO_OR_NONE)
    if isinstance(info, dict) and info.get("kind") == "trajectory":
        types["samples"] = tuple[Natural, ...]
    found = read_fields(types, info, allow=Allow.RECORD)
    kind, parts = found.get("kind"), found.get("parts")
    needed = ("dataset", "combine", *_NEEDED.get(kind or "", ()))
    if missing := [name for name in needed if found.get(name) is None]:
        raise ValueError(f"it does not say its {', '.join(missing)}")
    if kind == "shift" and not all(part.isdecimal() for part in parts or ()):
        raise ValueError("parts must be severities")
    if parts == ():
        raise ValueError("parts without names")
    return unstamp(info)


def _array_name(task: Task) -> str:
    """What the array of predictions is called in a file."""
    return _LOG_PROBS if task.has_classes else "outputs"
