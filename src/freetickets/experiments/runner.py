"""The runner: trains and measures tasks, one after the other or side by side, and never twice."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..errors import FreeTicketsError, StoppedError
from ..launch.assignment import WAIT, Assignment, Launcher
from ..lock import hold
from ..progress import Display, duration
from ..reading import Allow, read, read_json
from .answers import Answers, measure
from .experiment import Cell, Needs, joined, needed
from .grid import CellTask
from .provenance import chosen, fingerprint, origin
from .reading import experiment_names, load
from .results import read_record, record_path, run_folder, save
from .scales import MEASURED_BY, Scale, Substitute
from .substitutes import SubstituteFiles, outline, requests_for, settle

if TYPE_CHECKING:
    from ..data import LazySplit, Split
    from ..ensemble import Ensemble
    from ..ticket import Ticket
    from ..training.job import Job
    from ..training.ledger import Ledger
    from ..training.progress import Reporter

# Where and how a run is made: no result depends on it.
_FREE = ("dataset", "data_dir", "device", "workers", "output", "checkpoint_seconds", "trajectory")
# What a recipe or a data set fills in, so that nobody changes it there without being noticed.
_FILLED_IN = (
    "batch_size", "lr", "momentum", "weight_decay", "label_smoothing", "validation", "augmentation",
)  # fmt: skip

_LOGS = "logs"  # of cells that run side by side, while they run
_DATA_WAIT = 3600.0  # seconds; the longest download or corruption of a data set


class CellProgress(Display):
    """Counts cells; the time left is guessed by what cells cost, as they differ a lot."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.finished = 0  # not counting those that were done before
        self.failed: dict[str, str] = {}  # with the reason
        self._place = self._total = 0
        self._weights: list[float] = []
        self._spent = self._began = 0.0

    @contextlib.contextmanager
    def over(self, weights: Sequence[float], done: Sequence[bool]) -> Iterator[None]:
        """Shows the work on cells of these costs, of which some are done already."""
        self._weights = [cost for cost, was in zip(weights, done, strict=True) if not was]
        self._total, self._place = len(weights), sum(done)
        self._began = time.monotonic()
        if self._place:
            self.line(f"{self._place} of {self._total} cells are finished already")
        self._start_bar("cells", self._total, self._place)
        try:
            yield
        finally:
            self.stop()

    def begin(self, name: str) -> None:
        """Says which cell comes next."""
        self._update_bar(self._place, "", name)
        self.announce(f"[{self._place + 1}/{self._total}] {name} ...")

    def end(self, name: str, record: Mapping[str, Any]) -> None:
        """Says that a cell is finished, and what came out."""
        self.finished += 1
        place = self._next()
        rate = (time.monotonic() - self._began) / self._spent if self._spent else 0.0
        scores, seconds = record["metrics"]["ensemble"], sum(record["seconds"].values())
        news = f"accuracy {scores['accuracy']:.1%}, NLL {scores['nll']:.3f}, {seconds:.0f} s"
        self.line(f"{place} {name}: {news}, {duration(rate * sum(self._weights))} left")

    def fail(self, name: str, reason: str) -> None:
        """Says that a cell could not be finished, even when quiet."""
        self.failed[name] = reason
        self.warn(f"{self._next()} {name} failed: {reason}")

    def inside(self) -> Reporter:
        """What shows the steps of one training, beside the bar over all cells."""
        from ..training.progress import Reporter
        from ..training.state import Clock, Tally

        outer = self

        class Inside(Reporter):
            def step(self, clock: Clock, phase: str, tally: Tally) -> None:
                share = f"{clock.done / clock.total:.0%}"
                outer._update_bar(outer._place, share, None, f"{phase}, loss {tally.loss:.3f}")

        return Inside(quiet=True)

    def _next(self) -> str:
        self._spent += self._weights.pop(0)
        self._place += 1
        return f"[{self._place}/{self._total}]"


class Runner:
    """Trains and measures the tasks of one scale, below `<output>/<scale>`."""

    def __init__(
        self, scale: Scale, output: str | Path, data_dir: str | None = None, device: str = "auto",
        workers: int = 0,
    ) -> None:  # fmt: skip
        self.scale, self.missing_data = settle(scale, data_dir)
        self.folder = Path(output) / scale.name
        self._free = {"data_dir": data_dir, "device": device, "workers": workers}
        self._substitutes = SubstituteFiles(self.folder / "data", data_dir)

    # ---- before anything is trained

    def substitute(self, task: CellTask) -> Substitute:
        """What stands for the task's data."""
        return self.scale.substitutes[task.cell.dataset]

    def config(self, task: CellTask) -> Config:
        """The settings of a task, but for the file of its data."""
        config = self._given(task)
        return config.resolved(outline(self.substitute(task).data, config.data_dir))

    def _given(self, task: CellTask) -> Config:
        """The settings as the scale gives them: what it leaves to the recipe is None."""
        recorded = task.seed == 0 and task.cell in self._recorded
        output = str(run_folder(self.folder, task.cell, task.seed))
        return self.scale.config(task.cell, task.seed, recorded, output=output, **self._free)

    @cached_property
    def _recorded(self) -> set[Cell]:
        """The cells whose training is recorded, whichever experiment trains them first."""
        paper = needed(map(load, experiment_names()))
        return {cell for cell, needs in paper.items() if needs.trajectory}

    def outline(self, task: CellTask) -> Job:
        """A job that can be priced, not trained: the data is not read."""
        from ..training.job import Job

        config = self.config(task)
        spec = outline(self.substitute(task).data, config.data_dir)
        return Job(config, spec, None)  # type: ignore[arg-type]

    def price(self, task: CellTask) -> Ledger:
        """What a task will cost."""
        return self.outline(task).price()

    def fingerprint(self, task: CellTask) -> str:
        """A digest of all that the results of a task depend on, but for what is measured."""
        config, substitute, of = self.config(task), self.substitute(task), task.cell.of
        given = chosen(self._given(task))
        told = {
            **{name: value for name, value in given.items() if name not in (*_FREE, "options")},
            **{name: getattr(config, name) for name in _FILLED_IN},
            "method": {"name": config.method, "options": config.make_method()},
            "recipe": config.make_recipe(),
            "data": substitute.data,
            **({} if of is None else {"of": self.fingerprint(replace(task, cell=of))}),
            "measured by": {k: v for k, v in chosen(substitute).items() if k in MEASURED_BY},
        }
        return fingerprint(told)

    def result(self, task: CellTask) -> dict[str, Any] | None:
        """What was measured before, if that is all that the task asks for; None if not."""
        found = self._earlier(task)
        return found if found and _with_earlier(task, found) == _asked(found, task) else None

    def _earlier(self, task: CellTask) -> dict[str, Any] | None:
        found = read_record(record_path(self.folder, task.cell, task.seed))
        return found if found and found.get("fingerprint") == self.fingerprint(task) else None

    # ---- training and measuring

    def run_all(
        self, tasks: Iterable[CellTask], progress: CellProgress, launch: Launcher | None = None,
        command: Sequence[str] = (),
    ) -> dict[str, str]:  # fmt: skip
        """Trains and measures what is not finished; returns what failed, with the reason.

        `launch` works side by side, by the arguments `command` with a task's name behind them.
        """
        tasks = list(tasks)
        costs = {task.cell: self._cost(task) for task in tasks if task.seed == 0}
        weights = [costs.get(task.cell) or self._cost(task) for task in tasks]
        done = [self.result(task) is not None for task in tasks]
        left = [task for task, was in zip(tasks, done, strict=True) if not was]
        with progress.over(weights, done):
            try:
                if launch is None:
                    self._one_by_one(left, progress)
                else:
                    self._side_by_side(left, progress, launch, command)
            except (StoppedError, KeyboardInterrupt):
                finished = sum(done) + progress.finished
                raise StoppedError(
                    f"stopped: {finished} of {len(tasks)} cells are finished; run the command again"
                ) from None
        return progress.failed

    def _cost(self, task: CellTask) -> float:
        try:
            return self.price(task).flops
        except FreeTicketsError:
            return 0.0  # it will be told when its turn comes

    def _one_by_one(self, tasks: Iterable[CellTask], progress: CellProgress) -> None:
        for task in tasks:
            progress.begin(task.name)
            try:
                record = self.run(task, progress)
            except StoppedError:
                raise
            except Exception as error:  # whatever it is: the other cells are worth having
                progress.fail(task.name, reason(error))
            else:
                progress.end(task.name, record)

    def _side_by_side(
        self, tasks: Iterable[CellTask], progress: CellProgress, launch: Launcher,
        command: Sequence[str],
    ) -> None:  # fmt: skip
        by_name, logs = {task.name: task for task in tasks}, self.folder / _LOGS
        assignments = [
            Assignment(name, (*command, name), logs / f"{task.cell.name}-{task.seed}.txt")
            for name, task in by_name.items()
        ]
        with contextlib.closing(launch(assignments)) as told:
            for news in told:
                name = news.assignment.name
                if news.kind == "done":
                    news.assignment.log.unlink(missing_ok=True)
                    record = self._earlier(by_name[name])
                    assert record is not None
                    progress.end(name, record)
                elif news.kind == "failed":
                    progress.fail(name, news.text)
                elif news.kind == "again" or news.text.startswith("warning: "):
                    progress.warn(f"{name}: {news.text.removeprefix('warning: ')}")
                else:
                    progress.line(f"{name}: {news.text}")
        with contextlib.suppress(OSError):
            logs.rmdir()

    def run(self, task: CellTask, progress: CellProgress | None = None) -> dict[str, Any]:
        """Trains a task or goes on with it, measures it, writes its result and returns it."""
        progress = progress or CellProgress(quiet=True)
        if (earlier := self._earlier(task)) is not None:
            task = _with_earlier(task, earlier)
        job = self._job(task)
        folder = Path(str(job.config.output))
        try:
            job.config.check_same(folder)
        except FreeTicketsError:  # the scale has changed since
            names = (folder.with_name(f"old-{number}") for number in itertools.count(1))
            aside = folder.rename(next(name for name in names if not name.exists()))
            progress.warn(f"a run with other settings was moved to {aside}; it is trained again")
        with hold(folder, progress.line, WAIT):
            record = self._train(task, job, folder, progress)
            if earlier is not None:
                record["seconds"]["evaluation"] += earlier["seconds"]["evaluation"]
            save(self.folder, record, Answers.collect(folder))
        return record

    def _train(
        self, task: CellTask, job: Job, folder: Path, progress: CellProgress
    ) -> dict[str, Any]:
        from ..ensemble import Ensemble

        config = job.config
        if task.cell.of is None:
            tickets = job.train(progress.inside())
            ledger = read_json(folder / "ledger.json")
        else:
            tickets, ledger = self._join(task, task.cell.of, progress)
        began = time.monotonic()
        ensemble = Ensemble(tickets, job.build, device=config.device, method=job.method)
        notes = self._evaluate(folder, ensemble, task)
        parts = measure(folder, task.members)
        spent = time.monotonic() - began
        return {
            "scale": self.scale.name,
            "cell": task.cell.name,
            "seed": task.seed,
            "dataset": task.cell.dataset,
            "data": self.substitute(task).data.text,
            "model": config.model,
            "method": task.cell.method.name,
            "options": config.options,
            "fingerprint": self.fingerprint(task),
            "needs": asdict(task.needs),
            "row_members": list(task.members),
            "notes": notes,
            "settings": {k: v for k, v in asdict(config).items() if k not in (*_FREE, "options")},
            "origin": origin(folder),
            "ledger": {key: value for key, value in ledger.items() if key != "settings"},
            "seconds": {"training": ledger["seconds"], "evaluation": spent},
            **parts,
        }

    def _join(
        self, task: CellTask, of: Cell, progress: CellProgress
    ) -> tuple[list[Ticket], dict[str, Any]]:
        """The tickets of the first trainings of another cell, which are done if they are not."""
        price, tickets, seconds = self.price(task), [], 0.0
        for seed in range(price.tickets):
            job = self._job(CellTask(of, seed))
            folder = Path(str(job.config.output))
            with hold(folder, progress.line, WAIT):
                tickets += job.train(progress.inside())
                seconds += read_json(folder / "ledger.json")["seconds"]
        return tickets, {**price.as_dict(), "seconds": seconds}

    def _job(self, task: CellTask) -> Job:
        from .. import data
        from ..training.job import Job

        with self._data_to_itself():
            dataset = self._substitutes.dataset(self.substitute(task).data)
        config = replace(self.config(task), dataset=dataset)
        spec = data.get_spec(config.dataset, config.data_dir)

        def read() -> Split | LazySplit:
            with self._data_to_itself():  # it may have to be downloaded
                return data.load(spec, "train", config.data_dir)

        return Job(config, spec, read)

    def _data_to_itself(self) -> contextlib.AbstractContextManager[Any]:
        """Waits for others that make or fetch data for the cells of this folder."""
        return hold(self._substitutes.folder, wait=_DATA_WAIT)

    def _evaluate(self, folder: Path, ensemble: Ensemble, task: CellTask) -> list[str]:
        """Predicts all that is needed; returns a line for each set that is not the paper's."""
        from ..evaluation import evaluate_run

        substitute = self.substitute(task)
        root = self._substitutes.root(substitute.data)
        with self._data_to_itself():
            requests, notes = requests_for(substitute, task.needs, len(ensemble), self._substitutes)
        if not requests or substitute.samples is not None:
            evaluate_run(folder, ensemble, root)  # the whole test set
        together: dict[int | None, Any] = {}  # one request for all that ask for as many samples
        for request in requests:
            together[request.samples] = joined(together.get(request.samples, request), request)
        try:
            for request in together.values():
                evaluate_run(folder, ensemble, root, request=request)
        except StoppedError:
            raise
        except FreeTicketsError:
            evaluate_run(folder, ensemble, root)  # the test set, whatever else is missing
            for request in requests:  # one of them can't be had: which, and the others
                try:
                    evaluate_run(folder, ensemble, root, request=request)
                except StoppedError:
                    raise
                except FreeTicketsError as error:
                    notes.append(f"left out: {error}")
        return notes


def _asked(record: Mapping[str, Any], task: CellTask) -> CellTask:
    """The task that a result was measured for."""
    needs = read(Needs, record["needs"], allow=Allow.UNKNOWN)
    return replace(task, needs=needs, members=tuple(record["row_members"]))


def _with_earlier(task: CellTask, record: Mapping[str, Any]) -> CellTask:
    """A task that asks for what was measured before, too: no experiment takes from another."""
    before = _asked(record, task)
    members = tuple(sorted({*before.members, *task.members}))
    return replace(task, needs=before.needs | task.needs, members=members)


def reason(error: Exception) -> str:
    """Why a task failed, in one line."""
    kind = "" if isinstance(error, FreeTicketsError) else f"{type(error).__name__}: "
    return kind + (str(error).partition("\n")[0] or "no reason given")
