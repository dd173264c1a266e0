"""A plan in parts: each run in a folder of its own, put together as if one process had trained all.

A part is the same plan, begun by a checkpoint that stands before its run, and left after it. When
all parts are done, their logs, times and tickets make the checkpoint with which a serial run ends.
"""

from __future__ import annotations

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
from ..training.checkpoint import Checkpoints, check_plan, pack_checkpoint
from ..training.folder import write_settings
from ..training.job import PARTS, Job
from ..training.progress import Reporter
from ..training.state import State
from ..training.trajectory import forget_trajectory
from .assignment import Assignment, Launcher


def train_in_parts(
    job: Job, launch: Launcher, reporter: Reporter, flags: Sequence[str] = ()
) -> None:
    """Trains the runs of a job side by side; `Job.train` then finds a run that is finished.

    `flags` are what each process is told besides its settings. If a part can't be trained, or it
    is interrupted (StoppedError), all that was done is saved.
    """
    parts = _Parts(job, reporter, flags)
    for wave in waves(job.plan):
        assignments = [parts.begin(run) for run in wave if not parts.is_done(run)]
        if not assignments:
            continue
        reporter.start_parts(len(wave), len(wave) - len(assignments))
        try:
            with contextlib.closing(launch(assignments)) as told:
                for news in told:
                    if news.kind == "failed":
                        raise FreeTicketsError(f"{news.assignment.name}: {news.text}")
                    reporter.part(news.assignment.name, news.kind, news.text)
        finally:
            reporter.stop()
    parts.merge()


def waves(plan: Plan) -> list[list[int]]:
    """The runs of a plan, counted from 0, in groups whose members don't need each other.

    Example:
        >>> from freetickets.methods import LTR, Setting, get_recipe
        >>> waves(LTR(tickets=3).plan(Setting(get_recipe("small"))))
        [[0], [1, 2, 3]]
    """
    remembered: dict[str, int] = {}
    found: dict[int, list[int]] = {}
    for number, run in enumerate(plan.runs):
        start = run.start
        needed = (start.weights, start.topology) if start is not None else ()
        wave = 1 + max((remembered[name] for name in needed), default=-1)
        found.setdefault(wave, []).append(number)
        events = [event for phase in run.phases for event in phase.at_end]
        remembered.update({name: wave for event in events for name in event.remembers})
    return [found[wave] for wave in sorted(found)]


def are_there(output: Path) -> bool:
    """Whether a folder holds a run that was begun side by side and is not put together."""
    return (output / PARTS).exists()


class _Parts:
    """The parts of one job, below its output folder."""

    def __init__(self, job: Job, reporter: Reporter, flags: Sequence[str]) -> None:
        self._flags = flags
        self._job, self._plan, self._config = job, job.plan, job.config
        self._output = Path(str(job.config.output))
        self._warn = reporter.warn
        self._config.check_same(self._output)
        self._checkpoints = Checkpoints(self._output / "checkpoint", self._warn)
        saved = self._checkpoints.load()
        # Read once, before all workers do: it may have to be downloaded.
        self._identity = job.describe(*job.load_data()) if saved is None else saved
        self._saved = saved or self._begin()
        check_plan(self._output, self._saved["plan"], self._plan)
        # Where a serial run was stopped, if there was one: its last run goes on as a part.
        self._before = State.unpack(self._saved["state"])

    def _begin(self) -> dict[str, Any]:
        forget_trajectory(self._output)
        write_settings(self._config, self._output)
        saved = self._checkpoint(State())
        self._checkpoints.save(saved)
        return saved

    def begin(self, run: int) -> Assignment:
        """Makes the folder of a part, or leaves it as it was left, and says how to train it."""
        folder = self._folder(run)
        settings = replace(self._config, output=str(folder))
        checkpoints = Checkpoints(folder / "checkpoint", self._warn)
        settings.check_same(folder)
        write_settings(settings, folder)
        if checkpoints.load() is None:
            if run == self._before.run:
                for number in range(self._plan.tickets_before(run), self._before.tickets):
                    _copy(ticket_path(self._output, number + 1), ticket_path(folder, number + 1))
                checkpoints.save(self._saved)
            else:
                tickets = self._plan.tickets_before(run)
                before = self._before.choices
                state = State(run=run, tickets=tickets, shelf=self._shelf(run), choices=before)
                checkpoints.save(self._checkpoint(state))
        config = str(folder / "config.yaml")
        arguments = ("train", *self._flags, "--config", config, "--part", str(run))
        log = folder.with_suffix(".txt")
        return Assignment(f"run {run + 1} of {len(self._plan.runs)}", arguments, log)

    def is_done(self, run: int) -> bool:
        """Whether nothing is left to train of a run."""
        return run < self._before.run or self._state(run).run > run

    def merge(self) -> None:
        """Puts the parts together; killed at any moment, it is done again."""
        if self._before.run < len(self._plan.runs):
            rows = [row for row in self._before.rows if row["run"] <= self._before.run]
            seconds = {k: v for k, v in self._before.seconds.items() if k[0] <= self._before.run}
            for run in range(self._before.run, len(self._plan.runs)):
                part, folder = self._state(run), self._folder(run)
                own = {key: value for key, value in part.seconds.items() if key[0] == run + 1}
                earlier = sum(seconds.values()) - (sum(part.seconds.values()) - sum(own.values()))
                for row in part.rows:
                    if row["run"] == run + 1:
                        rows.append({**row, "seconds": row["seconds"] + earlier})
                seconds |= own
                for number in range(self._plan.tickets_before(run) + 1, part.tickets + 1):
                    _copy(ticket_path(folder, number), ticket_path(self._output, number))
                for file in trajectory_files(folder):
                    _copy(file, self._output / file.relative_to(folder))
            parts = map(self._state, range(self._before.run, len(self._plan.runs)))
            done = State(
                len(self._plan.runs),
                tickets=self._plan.tickets,
                rows=rows,
                seconds=seconds,
                choices=joined([self._before.choices, *(part.choices for part in parts)]),
            )
            self._checkpoints.save(self._checkpoint(done))
        shutil.rmtree(self._output / PARTS, ignore_errors=True)

    def _folder(self, run: int) -> Path:
        return self._output / PARTS / str(run + 1)

    def _state(self, run: int) -> State:
        saved = Checkpoints(self._folder(run) / "checkpoint", self._warn).load()
        return State() if saved is None else State.unpack(saved["state"])

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

    def _checkpoint(self, state: State) -> dict[str, Any]:
        return pack_checkpoint(self._plan, self._identity, state)


def _copy(source: Path, target: Path) -> None:
    write_atomic(target, source.read_bytes())
