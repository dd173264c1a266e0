"""A finished run, read back from its folder: what it was, what it cost, how good it is."""

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..config import Config, read_run_config
from ..data.npz import read_arrays, read_headers
from ..errors import FreeTicketsError
from ..evaluation import Predictions, describe_run
from ..evaluation.results import Evaluation
from ..predictions import REMAKE, read_info
from ..reading import Allow, damaged, printable, read, read_json
from ..training.ledger import Ledger
from ..training.state import LogRow, read_log

_MEND = "run the run's train command again to rewrite it"


@dataclass(frozen=True)
class RunSummary:
    """All that a report says of one run; of its predictions, where they are if there are any."""

    name: str
    folder: Path
    description: str
    config: Config
    ledger: Ledger
    log: tuple[LogRow, ...]
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
    """Reads a finished run; what is damaged or missing is an error that says what to do."""
    folder = Path(folder)
    _check_finished(folder)
    with damaged(folder / "config.yaml", "restore it, or leave this run out"):
        config = read_run_config(folder)
        description = printable(describe_run(asdict(config)))
    with damaged(folder / "ledger.json", _MEND):
        values = read_json(folder / "ledger.json")
        ledger: Ledger = read(Ledger, values, allow=Allow.RECORD)
        _check_owner(values.get("settings"), config)
        if not (ledger.phases and ledger.dense_flops > 0 and ledger.dense_forward_flops > 0):
            raise ValueError("no phases, or no dense cost to compare with")
        if not (math.isfinite(ledger.relative_flops) and math.isfinite(ledger.relative_test_flops)):
            raise ValueError("costs that are not numbers")
    with damaged(folder / "metrics.json", _MEND):
        results = Evaluation.load(folder / "metrics.json")
        _check_owner(results.settings, config)
    with damaged(folder / "log.csv", _MEND):
        log = read_log(folder / "log.csv", config.identity)
    return RunSummary(
        printable(folder.resolve().name), folder, description, config, ledger, log,
        replace(results, dataset=printable(results.dataset)),
        folder / "predictions" / f"{Path(results.dataset).stem}.npz",
    )  # fmt: skip


def read_runs(folders: Sequence[str | Path]) -> list[RunSummary]:
    """Reads runs that are to be compared, each once; equal names are told by the folders above."""
    distinct = {Path(folder).resolve(): Path(folder) for folder in folders}
    runs = [read_run(folder) for folder in distinct.values()]
    first, one = runs[0], runs[0].results
    for run in runs:
        other = run.results
        if (other.dataset, other.samples) != (one.dataset, one.samples):
            size = f"{one.dataset} ({one.samples:,} samples)"
            raise _different("test sets", first, size, run, f"{other.dataset} ({other.samples:,})")
        if other.task != one.task:
            raise _different("tasks", first, one.task.name, run, other.task.name)
    check_predictions_alike(runs)
    found = (["/".join(it.parts[-depth:]) for it in distinct] for depth in itertools.count(1))
    names = next(names for names in found if len(set(names)) == len(distinct))
    return [replace(run, name=printable(name)) for run, name in zip(runs, names, strict=True)]


def _different(
    what: str, first: RunSummary, one: str, run: RunSummary, other: str
) -> FreeTicketsError:
    return FreeTicketsError(
        f"these runs have different {what}: {first.name} {one}, {run.name} {other}; report them "
        "separately"
    )


def check_predictions_alike(runs: Sequence[RunSummary]) -> None:
    """Raises if saved predictions are not of the same samples and classes, or of metrics.json."""
    first: tuple[RunSummary, tuple[int, ...], npt.NDArray[Any]] | None = None
    for run in (run for run in runs if run.has_predictions):
        path = run.predictions_path
        (labels,) = read_arrays(path, "labels")
        header = read_headers(path).get("log_probs" if run.results.task.has_classes else "outputs")
        shape = header.shape if header else ()
        alien = (read_info(path) or {}).get("settings") not in (None, run.config.identity)
        alien |= run.results.task.has_classes and len(shape) != 3
        if alien or shape[:2] != (len(run.results.members), run.results.samples):
            raise FreeTicketsError(
                f"{path} holds other predictions than metrics.json: evaluate {run.folder} again"
            )
        if first is None:
            first = run, shape[2:], labels
        elif shape[2:] != first[1]:
            one, other = (" x ".join(map(str, it)) or "1" for it in (first[1], shape[2:]))
            raise _different("classes", first[0], one, run, other)
        elif not np.array_equal(labels, first[2]):
            raise FreeTicketsError(
                f"the labels of {run.name} differ from those of {first[0].name}: report them apart"
            )


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        raise FreeTicketsError(f"no folder {folder}: give the folder of a run, such as runs/edst")
    if not (folder / "config.yaml").exists():
        raise FreeTicketsError(
            f"{folder} is not the folder of a run: give the folder that train saved in"
        )
    if (folder / "metrics.json").exists():
        return
    wanted = None
    with contextlib.suppress(FreeTicketsError, KeyError, TypeError):
        wanted = read_json(folder / "ledger.json")["tickets"]
    if len(list((folder / "tickets").glob("[0-9]*.safetensors"))) == wanted:
        raise FreeTicketsError(f"{folder} is not scored: run 'freetickets evaluate {folder}' first")
    raise FreeTicketsError(f"{folder} is not finished: wait for it, or run its train command again")


def _check_owner(settings: str | None, config: Config) -> None:
    if settings not in (None, config.identity):
        raise ValueError("it belongs to a run with other settings than config.yaml says")
