"""Evidence: how two rows of a table differ, with the noise of that, and what it decides.

Where both rows have several seeds in common, the noise is the standard error of the difference over
these seeds. With one seed it is that over the test samples, if the predictions are there: it tells
what other samples would change, not what another training would. Costs that are counted have none.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..metrics.score import COSTS, column_of
from .experiment import Row
from .results import Results, value_of

Outcome = Literal["supported", "undecided", "contradicted", "not measured"]
Claimed = Literal["more", "not less", "alike"]
Form = Literal["difference", "points", "ratio", "coefficient"]

SIGNS: dict[Outcome, str] = dict(zip(get_args(Outcome), "✓~✗–", strict=True))
# What a value is multiplied by, its sign, its digits and its unit.
_FORMS: dict[Form, tuple[int, str, int, str]] = {
    "difference": (1, "+", 4, ""),
    "points": (100, "+", 2, " points"),
    "ratio": (1, "", 2, "x"),
    "coefficient": (1, "", 3, ""),
}
ERRORS = 2.0  # how many standard errors decide
# What is taken for equal where the paper says "as good" or "differ little": about what methods that
# it calls equal differ by in its own tables.
MARGINS = {"accuracy": 0.005, "nll": 0.02}

_COUNTED = ("train_flops", "test_flops", "growth_flops", "training_runs")
_RATIOS = {column.key for column in COSTS} - {"ticket_mb"}  # compared by their ratio


@dataclass(frozen=True)
class Finding:
    """One comparison that bears on a claim."""

    what: str  # what is compared, and in which number
    outcome: Outcome
    # The mean over seeds of the difference (below 0: the first number is the smaller one), the
    # ratio or the coefficient; None if it was not measured.
    value: float | None = None
    error: float | None = None  # its standard error, if that is known
    noise: str = ""  # what the error is over
    form: Form = "difference"  # how the value is written: "points" are shares in per cent

    @property
    def text(self) -> str:
        """The finding in words.

        Example:
            >>> Finding("DST against dense: KL", "supported", 0.0412, 0.011, "3 seeds").text
            'DST against dense: KL +0.0412 ± 0.0110 (3 seeds)'
        """
        if self.value is None:
            return self.what
        scale, sign, digits, unit = _FORMS[self.form]
        shown = f"{scale * self.value:{sign}.{digits}f}"
        if self.error is not None:
            shown += f" ± {scale * self.error:.{digits}f}"
        return f"{self.what} {shown}{unit} ({self.noise})"


def marked(outcome: Outcome) -> str:
    """An outcome with its sign, so that it is seen at a glance and without colour."""
    return f"{SIGNS[outcome]} {outcome}"


def tally(outcomes: Iterable[Outcome]) -> str:
    """How many there are of each outcome."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[each]} {each}" for each in SIGNS if counts[each])


def decide(
    difference: float, error: float, claimed: Claimed = "more", margin: float = 0.0
) -> Outcome:
    """What a difference and its standard error decide."""
    low, high = difference - ERRORS * error, difference + ERRORS * error
    if claimed == "more":
        return "supported" if low > 0 else "contradicted" if high < 0 else "undecided"
    if low >= -margin and (claimed == "not less" or high <= margin):
        return "supported"
    too_large = claimed == "alike" and low > margin
    return "contradicted" if too_large or high < -margin else "undecided"


def compare(
    results: Results, one: Row, other: Row, column: str | Sequence[str], claimed: Claimed = "more"
) -> Finding:
    """Compares two rows in a column, or in the mean of several.

    Whatever the sign of the difference, "more" and "not less" mean that the first row is better.
    """
    key, *more = columns = [column] if isinstance(column, str) else list(column)
    shown = column_of(key)
    assert shown is not None, f"experiments have no column {key}"
    name = f"mean {key.rpartition('.')[2].upper()} of {len(columns)} sets" if more else shown.title
    what = f"{_label(one)} against {_label(other)}: {name}"
    mine, theirs = (_by_seed(results, row, columns) for row in (one, other))
    shared = sorted(set(mine) & set(theirs))
    form: Form = "points" if shown.is_share else "difference"
    each, alike = [mine[seed] - theirs[seed] for seed in shared], 0.0
    if key in _RATIOS:
        form, alike = "ratio", 1.0
        each = [mine[seed] / theirs[seed] for seed in shared if theirs[seed]]
    if not each:
        return Finding(what, "not measured")
    value, error, noise = statistics.fmean(each), _error(each), f"{len(each)} seeds"
    if key in _COUNTED:
        error, noise = None, "counted"
    elif error is None:
        error = None if more else _error_over_samples(results, one, other, key, shared[0])
        noise = "one seed" if error is None else "one seed; error over test samples"
    outcome: Outcome = "undecided"
    if error is not None or key in _COUNTED:
        gain = shown.sign * (value - alike)
        outcome = decide(gain, error or 0.0, claimed, MARGINS.get(key, 0.0))
    return Finding(what, outcome, value, error, noise, form)


def correlates(results: Results, row: Row) -> Finding:
    """Whether members' and ensemble's accuracy correlate over the cells of a row.

    With one seed, the error is Fisher's of the transformed coefficient.
    """
    what = f"{_label(row)}: Pearson's coefficient over {len(row.cells)} runs"
    values = results.values(row, "correlation.pearson")
    if not values:
        return Finding(what, "not measured")
    mean, error, noise = statistics.fmean(values), _error(values), f"{len(values)} seeds"
    outcome: Outcome = "undecided"
    if error is not None:
        outcome = decide(mean, error)
    elif (freedom := len(row.cells) - 3) < 1:
        noise = "one seed"
    else:
        z = math.copysign(math.inf, mean) if abs(mean) >= 1 else math.atanh(mean)
        outcome, noise = decide(z, 1 / math.sqrt(freedom)), f"one seed; Fisher's z = {z:.2f}"
    return Finding(what, outcome, mean, error, noise, "coefficient")


def _error(values: Sequence[float]) -> float | None:
    """The standard error of a mean; None of one value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _label(row: Row) -> str:
    if row.members is None or f"M={row.members}" in row.label:
        return row.label
    return f"{row.label}, first member" if row.members == 1 else f"{row.label}, {row.members} first"


def _by_seed(results: Results, row: Row, columns: Sequence[str]) -> dict[int, float]:
    found = [results.by_seed(row, column) for column in columns]
    shared = set(found[0]).intersection(*found)
    return {seed: statistics.fmean(each[seed] for each in found) for seed in shared}


def _error_over_samples(
    results: Results, one: Row, other: Row, column: str, seed: int
) -> float | None:
    """The standard error of a difference of means over the same test samples."""
    mine, theirs = (_samples(results, row, column, seed) for row in (one, other))
    if mine is None or theirs is None or not np.array_equal(mine[0], theirs[0]):
        return None
    if len(mine[0]) < 2:
        return None
    differences = mine[1] - theirs[1]
    error = float(differences.std(ddof=1) / math.sqrt(len(differences)))
    return error if math.isfinite(error) else None


def _samples(results: Results, row: Row, column: str, seed: int) -> tuple[Any, Any] | None:
    """The labels of the test samples, and what each adds to a number of a row."""
    record, folder = results.get(row.cells[0], seed), results.run_folder(row.cells[0], seed)
    if record is None or folder is None:
        return None
    path = folder / "predictions" / f"{Path(record['metrics']['dataset']).stem}.npz"
    if not path.is_file():
        return None
    from ..predictions import Predictions

    saved = Predictions.load(path)
    # Those of other tickets than the results are of say nothing about them.
    right, accuracy = saved.samples("accuracy"), value_of(record, "accuracy")
    if right is None or accuracy is None or abs(right.mean() - accuracy) > 1e-6:
        return None
    if row.members is not None:
        saved = saved.adjusted(range(row.members), None)
    found = saved.samples(column)
    return None if found is None else (saved.labels, found)
