"""A plan in parts: each run in a folder of its own, put together as if one process had trained all.

A part is the same plan, begun by a checkpoint that stands before its run, and left after it. When
all parts are done, their logs, times and tickets make the checkpoint with which a serial run ends.
"""

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError
from ..kernels.choices import joined
from ..methods.plan import Plan
from ..predictions import trajectory_files
from ..storage import write_atomic
from ..ticket import ticket_path
from ..training.folder import RunFolder, write_settings
from ..training.job import PARTS, Job
from ..training.progress import Reporter
from ..training.state import State
from ..training.trajectory import forget_trajectory
from .assignment import Assignment, Launcher


def train_in_parts(job: Job, launch: Launcher, shown: Reporter, flags: Sequence[str] = ()) -> None:
    """Trains the runs of a job side by side; `Job.train` then finds a run that is finished.

    `flags` are what each process is told besides its settings. If a part can't be trained, or it
    is interrupted (StoppedError), all that was done is saved.
    """
    parts = _Parts(job, shown, flags)
    for wave in waves(job.plan):
        assignments = [parts.begin(run) for run in wave if not parts.is_done(run)]
        if not assignments:
            continue
        shown.start_parts(len(wave), len(wave) - len(assignments))
        try:
            with contextlib.closing(launch(assignments)) as told:
                for news in told:
                    if news.kind == "failed":
                        raise FreeTicketsError(f"{news.assignment.name}: {news.text}")
                    shown.part(news.assignment.name, news.kind, news.text)
        finally:
            shown.stop()
    parts.merge()


def waves(plan: Plan) -> list[list[int]]:
    """The runs of a plan, counted from 0, in groups whose members don't need each other."""
    remembered: dict[str, int] = {}
    found: dict[int, list[int]] = {}
    for number, run in enumerate(plan.runs):
        needed = (run.start.weights, run.start.topology) if run.start is not None else ()
        wave = 1 + max((remembered[name] for name in needed), default=-1)
        found.setdefault(wave, []).append(number)
        events = [event for phase in run.phases for event in phase.at_end]
        remembered.update({name: wave for event in events for name in event.remembers})
    return [found[wave] for wave in sorted(found)]


class _Parts:
    def __init__(self, job: Job, reporter: Reporter, flags: Sequence[str]) -> None:
        self._plan, self._config = job.plan, job.config
        self._warn, self._flags = reporter.warn, flags
        output = Path(str(job.config.output))
        self._config.check_same(output)
        self._whole = RunFolder(output, self._plan, None, self._warn)
        saved = self._whole.load()
        if saved is None:
            # Read once, before all workers do: it may have to be downloaded.
            described = job.describe(*job.load_data())
            self._whole = RunFolder(output, self._plan, described, self._warn)
            forget_trajectory(output)
            write_settings(self._config, output)
            self._whole.save(State())
        # Where a serial run was stopped, if there was one: its last run goes on as a part.
        self._before, self._session = saved or (State(), None)

    def begin(self, run: int) -> Assignment:
        """Makes the folder of a part, or leaves it as it was left, and says how to train it."""
        part, before, first = self._part(run), self._before, self._plan.tickets_before(run)
        settings = replace(self._config, output=str(part.path))
        settings.check_same(part.path)
        write_settings(settings, part.path)
        if part.load() is None:
            if run == before.run:
                for number in range(first + 1, before.tickets + 1):
                    _copy(ticket_path(self._whole.path, number), ticket_path(part.path, number))
                part.save(before, self._session)
            else:
                shelf = self._shelf(run)
                part.save(State(run, tickets=first, shelf=shelf, choices=before.choices))
        config = str(part.path / "config.yaml")
        arguments = ("train", *self._flags, "--config", config, "--part", str(run))
        log = part.path.with_suffix(".txt")
        return Assignment(f"run {run + 1} of {len(self._plan.runs)}", arguments, log)

    def is_done(self, run: int) -> bool:
        return run < self._before.run or self._state(run).run > run

    def merge(self) -> None:
        """Puts the parts together; killed at any moment, it is done again."""
        before, end, output = self._before, len(self._plan.runs), self._whole.path
        if before.run < end:
            parts = {run: self._state(run) for run in range(before.run, end)}
            rows = [row for row in before.rows if row["run"] <= before.run]
            seconds = {k: v for k, v in before.seconds.items() if k[0] <= before.run}
            for run, part in parts.items():
                own = {key: value for key, value in part.seconds.items() if key[0] == run + 1}
                earlier = sum(seconds.values()) - (sum(part.seconds.values()) - sum(own.values()))
                for row in part.rows:
                    if row["run"] == run + 1:
                        rows.append({**row, "seconds": row["seconds"] + earlier})
                seconds |= own
                folder = self._part(run).path
                for number in range(self._plan.tickets_before(run) + 1, part.tickets + 1):
                    _copy(ticket_path(folder, number), ticket_path(output, number))
                for file in trajectory_files(folder):
                    _copy(file, output / file.relative_to(folder))
            choices = joined([before.choices, *(part.choices for part in parts.values())])
            tickets = self._plan.tickets
            done = State(end, tickets=tickets, rows=rows, seconds=seconds, choices=choices)
            self._whole.save(done)
        shutil.rmtree(output / PARTS, ignore_errors=True)

    def _part(self, run: int) -> RunFolder:
        folder = self._whole.path / PARTS / str(run + 1)
        return RunFolder(folder, self._plan, self._whole.identity, self._warn)

    def _state(self, run: int) -> State:
        saved = self._part(run).load()
        return State() if saved is None else saved[0]

    def _shelf(self, run: int) -> dict[str, dict[str, Any]]:
        """What a run starts from, as the runs before it have remembered it."""
        start = self._plan.runs[run].start
        if start is None:
            return {}
        found = dict(self._before.shelf)
        for before in range(self._before.run, run):
            if self._plan.runs[before].start is None:
                found |= self._state(before).shelf
        return {name: found[name] for name in (start.weights, start.topology)}


def _copy(source: Path, target: Path) -> None:
    write_atomic(target, source.read_bytes())
