"""A finished run, read back from its folder: what it was, what it cost, how good it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config, read_run_config
from ..data.npz import read_arrays, read_headers
from ..errors import FreeTicketsError
from ..evaluation import Predictions, describe_run
from ..evaluation.results import Evaluation, TaskFacts
from ..predictions import REMAKE, read_info
from ..reading import Allow, damaged, printable, read, read_json
from ..training.ledger import Ledger
from ..training.log import LogRow, read_log


@dataclass(frozen=True)
class RunSummary:
    """All that a report says of one run.

    Attributes:
        name: What the report calls it: the name of its folder.
        folder: Where it lies.
        description: Its method and main options, in a few words.
        config: Its settings.
        ledger: What it cost.
        dataset: The data set that it was tested on.
        samples: How many samples that test had.
        members: The scores of each member, by the keys of the task's scores.
        member_mean: The mean of those.
        ensemble: The scores of the members' joint prediction.
        log: What was measured during training, epoch by epoch.
        task: What was learned.
        results: What else was measured of it.
        predictions_path: Where its predictions of the test set are; there need not be any.
    """

    name: str
    folder: Path
    description: str
    config: Config
    ledger: Ledger
    dataset: str
    samples: int
    members: tuple[Mapping[str, float], ...]
    member_mean: Mapping[str, float]
    ensemble: Mapping[str, float]
    log: tuple[LogRow, ...]
    task: TaskFacts
    results: Evaluation = field(compare=False)
    predictions_path: Path = Path()

    @property
    def has_predictions(self) -> bool:
        """Whether the predictions of the test set are saved."""
        return self.predictions_path.is_file()

    def load_predictions(self) -> Predictions:
        """Reads the predictions of the test set; they are large, so this is not kept."""
        return Predictions.load(self.predictions_path)

    def load_ensemble(self) -> npt.NDArray[np.float64]:
        """The log-probabilities of the ensemble on the test set, (1, N, C)."""
        with damaged(self.predictions_path, REMAKE):
            return self.load_predictions().ensemble()


def read_run(folder: str | Path) -> RunSummary:
    """Reads a finished run.

    Raises:
        FreeTicketsError: It is not the folder of a run, the run is not finished, or a file of it
            is damaged; the message says what to do.
    """
    folder = Path(folder)
    _check_finished(folder)
    config, description = _read_settings(folder / "config.yaml")
    with _mendable(folder / "ledger.json") as path:
        ledger = _read_ledger(path, config)
    with _mendable(folder / "metrics.json") as path:
        scores = Evaluation.load(path)
        _check_owner(scores.settings, config)
    with _mendable(folder / "log.csv") as path:
        log = read_log(path, config.identity)
    return RunSummary(
        printable(folder.resolve().name),
        folder,
        description,
        config,
        ledger,
        printable(scores.dataset),
        scores.samples,
        scores.members,
        scores.member_mean,
        scores.ensemble,
        log,
        scores.task,
        scores,
        folder / "predictions" / f"{Path(scores.dataset).stem}.npz",
    )


def read_runs(folders: Sequence[str | Path]) -> list[RunSummary]:
    """Reads runs that are to be compared; a folder given twice counts once.

    Runs whose folders have the same name are told apart by the folders above.

    Raises:
        FreeTicketsError: A run can't be read, or not all were tested on the same data.
    """
    distinct = list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
    runs = [read_run(folder) for folder in distinct]
    first = runs[0]
    for run in runs:
        if (run.dataset, run.samples) != (first.dataset, first.samples):
            raise FreeTicketsError(
                f"these runs have different test sets: {first.name} {first.dataset} "
                f"({first.samples:,} samples), {run.name} {run.dataset} ({run.samples:,}); "
                "report them separately"
            )
        if run.task != first.task:
            raise FreeTicketsError(
                f"these runs have different tasks: {first.name} {first.task.name}, {run.name} "
                f"{run.task.name}; report them separately"
            )
    check_predictions_alike(runs)
    names = short_names([run.folder.resolve() for run in runs])
    return [replace(run, name=printable(name)) for run, name in zip(runs, names, strict=True)]


def check_predictions_alike(runs: Sequence[RunSummary]) -> None:
    """Raises if saved predictions are not of the same samples and classes.

    Only labels and headers are read.

    Raises:
        FreeTicketsError: They are not, or those of a run are not what its metrics.json is of.
    """
    first: tuple[RunSummary, tuple[int, ...], npt.NDArray[Any]] | None = None
    for run in runs:
        if not run.has_predictions:
            continue
        path = run.predictions_path
        (labels,) = read_arrays(path, "labels")
        header = read_headers(path).get("log_probs" if run.task.has_classes else "outputs")
        shape = header.shape if header else ()
        told = (read_info(path) or {}).get("settings")
        alien = told not in (None, run.config.identity)
        alien |= run.task.has_classes and len(shape) != 3
        if alien or shape[:2] != (len(run.members), run.samples):
            raise FreeTicketsError(
                f"{path} holds other predictions than metrics.json is of: run 'freetickets "
                f"evaluate {run.folder}' again"
            )
        if first is None:
            first = run, shape[2:], labels
        elif shape[2:] != first[1]:
            raise FreeTicketsError(
                f"these runs have different classes: {first[0].name} {_count(first[1])}, "
                f"{run.name} {_count(shape[2:])}; report them separately"
            )
        elif not np.array_equal(labels, first[2]):
            raise FreeTicketsError(
                f"the labels of {run.name} differ from those of {first[0].name}, so these are not "
                "the same test samples: report them separately"
            )


def _count(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def short_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of distinct absolute paths, as few as tell them apart.

    Example:
        >>> short_names([Path("/runs/edst"), Path("/runs/dense")])
        ['edst', 'dense']
        >>> short_names([Path("/a/edst"), Path("/b/edst")])
        ['a/edst', 'b/edst']
    """
    depth = 1
    while True:
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(set(folders)):
            return names
        depth += 1


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        raise FreeTicketsError(f"no folder {folder}: give the folder of a run, such as runs/edst")
    if not (folder / "config.yaml").exists():
        raise FreeTicketsError(
            f"{folder} is not the folder of a run (it has no config.yaml): give the folder that "
            "train saved in"
        )
    if (folder / "metrics.json").exists():
        return
    if _is_trained(folder):
        raise FreeTicketsError(
            f"{folder} is trained but not scored: run 'freetickets evaluate {folder}' first"
        )
    raise FreeTicketsError(
        f"{folder} is not finished: wait for its training, or run its train command again if it "
        "was stopped"
    )


def _is_trained(folder: Path) -> bool:
    try:
        wanted = read_json(folder / "ledger.json")["tickets"]
    except (FreeTicketsError, KeyError, TypeError):
        return False
    return len(list((folder / "tickets").glob("[0-9]*.safetensors"))) == wanted


def _read_settings(path: Path) -> tuple[Config, str]:
    """The settings of a run, and the same in a few words."""
    with damaged(path, "restore it, or leave this run out"):
        config = read_run_config(path.parent)
        return config, printable(describe_run(asdict(config)))


def _check_owner(settings: str | None, config: Config) -> None:
    if settings not in (None, config.identity):
        raise ValueError("it belongs to a run with other settings than config.yaml says")


def _read_ledger(path: Path, config: Config) -> Ledger:
    values = read_json(path)
    ledger: Ledger = read(Ledger, values, allow=Allow.RECORD)
    _check_owner(values.get("settings"), config)
    if not (ledger.phases and ledger.dense_flops > 0 and ledger.dense_forward_flops > 0):
        raise ValueError("no phases, or no dense cost to compare with")
    if not (math.isfinite(ledger.relative_flops) and math.isfinite(ledger.relative_test_flops)):
        raise ValueError("costs that are not numbers")
    return ledger


@contextmanager
def _mendable(path: Path) -> Iterator[Path]:
    """Turns what can go wrong with a file that training writes into what mends it."""
    with damaged(path, "run the run's train command again to rewrite it"):
        yield path
