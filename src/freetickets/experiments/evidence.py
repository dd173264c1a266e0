"""Evidence: how two rows differ in a score, and how sure that is, from the records of a scale.

By the rule of docs/reproduce.md: noise of training from seeds, of test images from the answers.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ..metrics.score import COSTS
from ..metrics.significance import Estimate, pooled_variance
from .experiment import Row
from .results import Results, read_answers
from .timing import COLUMNS

if TYPE_CHECKING:
    from .answers import Answers, Array

RATIOS = {column.key for column in COSTS} - {"ticket_mb"} | {*COLUMNS}  # differ by a factor
_COUNTED = ("train_flops", "test_flops", "growth_flops", "training_runs")
_Seeds = Mapping[int, float]


@dataclass(frozen=True)
class Measured:
    """How two rows differ; costs by the logarithm of their ratio."""

    estimate: Estimate
    noise: str  # what is known of it, in words
    decides: bool = True  # whether enough is known


class Evidence:
    """Compares rows; what several comparisons need of a record is computed once."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._methods = cache(self._read_methods)
        self._answers = cache(self._read_answers)
        self._images = cache(self._read_images)

    def compare(
        self, one: Row, other: Row, columns: tuple[str, ...], versus: str = ""
    ) -> Measured | None:
        """The first row less the second in a column or the mean of several; None if not measured.

        `versus` is the column of the second, if it is another.
        """
        mine = self._by_seed(one, columns)
        theirs = self._by_seed(other, (versus,) if versus else columns)
        seeds = sorted(set(mine) & set(theirs))
        if columns[0] in COLUMNS and seeds:
            rows = (one, columns[0]), (other, versus or columns[0])
            mine, theirs = (dict(enumerate(self.rounds(row, column))) for row, column in rows)
            seeds = sorted(set(mine) & set(theirs))
        if columns[0] in RATIOS:
            return _ratio(columns[0], [(mine[seed], theirs[seed]) for seed in seeds])
        if not seeds:
            return None
        # A part of an ensemble is a method of its own.
        parts = [own for row, own in ((one, mine), (other, theirs)) if row.members is not None]
        table = _alike([*self._methods(one.dataset, columns), *parts], seeds)
        joined = one.of is not None or other.of is not None
        variance, freedom = pooled_variance(table) if table and not joined else (0.0, math.inf)
        sampling, samples = self._over_images(one, other, columns, seeds)
        noise = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
        if joined:
            noise = "one ensemble of all seeds, so without noise of training"
        elif not table:
            noise += ", so the noise of training is not known"
        noise += f"; {samples:,} images" if samples else "; without noise of images"
        value = statistics.fmean(mine[seed] - theirs[seed] for seed in seeds)
        estimate = Estimate(value, 2 * variance / len(seeds), freedom, sampling, samples)
        return Measured(estimate, noise, samples > 0 if joined else table is not None)

    def rounds(self, row: Row, column: str) -> list[float]:
        """The seconds of a row's training, in each round of timings: seeds don't differ in them."""
        timing, cell = self._results.timing, row.cells[0]
        seeds = self._results.seeds(cell)
        if timing is None or not seeds:
            return []
        return timing.rounds(self._results.records[cell.name, seeds[0]], column)

    def correlation(self, row: Row) -> Measured | None:
        """Pearson's coefficient over the cells of a row, by Fisher's z."""
        values, points = self._results.values(row, "correlation.pearson"), len(row.cells)
        if not values:
            return None
        z = statistics.fmean(math.atanh(min(max(value, -1 + 1e-12), 1 - 1e-12)) for value in values)
        if points < 4:
            return Measured(Estimate(z), f"{points} runs", decides=False)
        noise = f"{points} runs of {len(values)} seeds" if len(values) > 1 else f"{points} runs"
        return Measured(Estimate(z, 1 / ((points - 3) * len(values))), f"{noise}; Fisher's z")

    def _by_seed(self, row: Row, columns: Sequence[str]) -> _Seeds:
        found = [self._results.by_seed(row, column) for column in columns]
        shared = set(found[0]).intersection(*found)
        return {seed: statistics.fmean(each[seed] for each in found) for seed in shared}

    def _read_methods(self, dataset: str, columns: tuple[str, ...]) -> list[_Seeds]:
        """The scores of each method of a data set, by seed."""
        found: dict[str, dict[int, float]] = {}
        for (name, seed), record in self._results.records.items():
            if record.get("dataset") == dataset:
                values = [self._results.number(name, column, seed) for column in columns]
                known = [value for value in values if value is not None]
                if len(known) == len(columns):
                    found.setdefault(name, {})[seed] = statistics.fmean(known)
        return list(found.values())

    # ---- test images

    def _over_images(
        self, one: Row, other: Row, columns: tuple[str, ...], seeds: Sequence[int]
    ) -> tuple[float, int]:
        """The variance of a difference over test images, and how many; 0 where none are kept."""
        names = [(row.cells[0].name, row.members) for row in (one, other)]
        pairs = [[self._images(*name, seed, columns) for name in names] for seed in seeds]
        gaps = [mine[0] - theirs[0] for mine, theirs in pairs if mine and theirs]
        if len(gaps) < len(seeds) or pairs[0][0] is None:
            return 0.0, 0
        _, samples, divisor = pairs[0][0]
        return float(np.mean(gaps, axis=0).var(ddof=1)) / divisor, samples

    def _read_images(
        self, name: str, members: int | None, seed: int, columns: tuple[str, ...]
    ) -> tuple[Array, int, int] | None:
        """What each image adds to a score, or the score of images that are drawn again and again.

        Then how many images these are, and what is to divide the variance of the values.
        """
        if (answers := self._answers(name, seed)) is None:
            return None
        if (added := _mean(answers.added(column, members) for column in columns)) is not None:
            return added, len(added), len(added)
        told = [(column, self._results.number(name, column, seed)) for column in columns]
        drawn = _mean(answers.drawn(*each) for each in told) if members is None else None
        return None if drawn is None else (drawn, len(answers.labels), 1)

    def _read_answers(self, name: str, seed: int) -> Answers | None:
        record, folder = self._results.records[name, seed], self._results.folder
        if folder is None or record.get("answers") is None:
            return None
        return read_answers(folder, record)


def _mean(arrays: Iterable[Array | None]) -> Array | None:
    found = list(arrays)
    known = [each for each in found if each is not None]
    return np.mean(known, axis=0) if len(known) == len(found) else None


def _alike(methods: Sequence[_Seeds], seeds: Sequence[int]) -> list[list[float]] | None:
    """The scores of all methods that have all of some seeds; None if these tell no noise.

    One seed tells none; then those that at least two methods share.
    """
    wanted = set(seeds)
    if len(wanted) < 2:
        pairs = (set(a) & set(b) for a, b in itertools.combinations(methods, 2))
        wanted = max(pairs, key=len, default=set())
    table = [[own[seed] for seed in sorted(wanted)] for own in methods if wanted <= set(own)]
    return table if len(table) > 1 and len(wanted) > 1 else None


def _ratio(column: str, pairs: Sequence[tuple[float, float]]) -> Measured | None:
    """How two costs differ, over seeds that are repeated timings; what is counted has no noise."""
    logs = [math.log(mine / theirs) for mine, theirs in pairs if mine > 0 and theirs > 0]
    if not logs:
        return None
    estimate = Estimate(statistics.fmean(logs))
    if column in _COUNTED:
        return Measured(estimate, "counted")
    if len(logs) < 2:
        return Measured(estimate, "timed without a spread", decides=False)
    variance = statistics.variance(logs) / len(logs)
    estimate = replace(estimate, training=variance, freedom=len(logs) - 1)
    return Measured(estimate, f"timed {len(logs)} times")
