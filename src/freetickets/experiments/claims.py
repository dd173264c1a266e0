"""Claims: what the paper concludes from a table, checked against what was measured.

The evidence is how two rows differ, and the noise of that: with several seeds in common, the
standard error over these. With one seed it is that over the test samples, if the predictions are
there: what other samples would change, not what another training would. Counted costs have none.
"""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..metrics.score import COSTS, column_of
from .experiment import Experiment, Row, own_yaml
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
        """The finding in words."""
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
    """Compares two rows in a column or the mean of several: "more" is that the first is better."""
    key, *more = columns = [column] if isinstance(column, str) else list(column)
    shown = column_of(key)
    assert shown is not None, f"experiments have no column {key}"
    name = f"mean {key.rpartition('.')[2].upper()} of {len(columns)} sets" if more else shown.title
    what = f"{_label(one)} against {_label(other)}: {name}"
    mine: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for row, told in ((one, mine), (other, theirs)):
        found = [results.by_seed(row, column) for column in columns]
        for seed in set(found[0]).intersection(*found):
            told[seed] = statistics.fmean(each[seed] for each in found)
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
    """Whether members' and ensemble's accuracy correlate over the cells of a row."""
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
    """None of one value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None


def _label(row: Row) -> str:
    if row.members is None or f"M={row.members}" in row.label:
        return row.label
    return f"{row.label}, first member" if row.members == 1 else f"{row.label}, {row.members} first"


def _error_over_samples(
    results: Results, one: Row, other: Row, column: str, seed: int
) -> float | None:
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


# --- claims

DIVERSITY = ("diversity.disagreement", "diversity.kl")
_CLAIMS: dict[str, dict[str, Any]] = own_yaml("claims.yaml")
CLAIMS = {claim: told["says"] for claim, told in _CLAIMS.items()}


@dataclass(frozen=True)
class Verdict:
    """Whether the measurements of a table bear out a claim on one data set."""

    claim: str  # a key of `CLAIMS`
    dataset: str  # its key
    outcome: Outcome  # supported, if every finding is; contradicted, if any is
    findings: tuple[Finding, ...] = ()

    @property
    def statement(self) -> str:
        """The claim in words."""
        return CLAIMS[self.claim]


def judge(experiment: Experiment, results: Results) -> list[Verdict]:
    """Checks the claims of a table or figure, each data set for itself."""
    verdicts = []
    datasets = dict.fromkeys(row.dataset for row in experiment.rows)
    for claim, dataset in itertools.product(experiment.claims, datasets):
        rows = [row for row in experiment.rows if row.dataset == dataset]
        findings = tuple(_Measured(results, rows).check(claim))
        outcomes: set[Outcome] = {finding.outcome for finding in findings} or {"not measured"}
        overall: Outcome = "contradicted" if "contradicted" in outcomes else "undecided"
        if len(outcomes) == 1:
            (overall,) = outcomes
        verdicts.append(Verdict(claim, dataset, overall, findings))
    return verdicts


@dataclass(frozen=True)
class _Measured:
    """The rows of a table on one data set, and what was measured of them."""

    results: Results
    rows: Sequence[Row]

    def of(self, *methods: str, by: str = "") -> list[Row]:
        """The whole ensembles of some methods, sorted by an option if one is named."""
        found = [row for row in self.rows if row.method.name in methods and row.members is None]
        return sorted(found, key=lambda row: _option(row, by)) if by else found

    def compare(
        self, ones: Iterable[Row], others: Iterable[Row], columns: Iterable[str | Sequence[str]],
        claimed: Claimed = "more",
    ) -> Iterator[Finding]:  # fmt: skip
        """Each row of one side against each of the other, in each column or mean of several."""
        for one, other, column in itertools.product(ones, others, columns):
            yield compare(self.results, one, other, column, claimed)

    def check(self, claim: str) -> Iterable[Finding]:
        """What is found of a claim."""
        told = _CLAIMS[claim]
        if "columns" not in told:
            return getattr(self, claim.replace("-", "_"))()
        sides = self.of(*told["of"]), self.of(*told["against"])
        return self.compare(*sides, told["columns"], told.get("claimed", "more"))

    def diversity_order(self) -> Iterator[Finding]:
        order = (self.of(method)[:1] for method in ("dst", "static", "edst", "ltr"))
        for one, other in itertools.pairwise(filter(None, order)):
            yield from self.compare(one, other, DIVERSITY)

    def exploration_raises_diversity(self) -> Iterator[Finding]:
        edst, columns = self.of("edst"), (*DIVERSITY, "accuracy")
        fixed = [row for row in edst if _option(row, "escape_rate") == 0]
        yield from self.compare([row for row in edst if row not in fixed], fixed, columns)
        yield from self.compare(self.of("dst"), self.of("static"), columns)

    def ensembles_help_ood(self) -> Iterator[Finding]:
        columns = list(dict.fromkeys(column for row in self.rows for column in row.paper))
        # Where a set could not be had, the claim is about the others.
        had = [c for c in columns if any(self.results.values(row, c) for row in self.rows)]
        for row in self.of("static", "dst", "edst"):
            others = [replace(row, members=1), *self.of("dense")]
            yield from self.compare([row], others, [had or columns])

    def ensembles_help_under_attack(self) -> Iterator[Finding]:
        for row in self.of("static", "dst", "edst"):
            yield from self.compare([row], [replace(row, members=1)], ["attacks.fgsm.mean"])

    def members_and_ensemble_correlate(self) -> Iterator[Finding]:
        for method in dict.fromkeys(row.method.name for row in self.rows):
            points = [row for row in self.rows if row.method.name == method]
            if not points[0].over:  # a row for each sparsity
                over = {"sparsity": tuple(_option(row, "sparsity") for row in points)}
                points = [replace(points[0], label=points[0].label.partition(" ")[0], over=over)]
            yield from (correlates(self.results, row) for row in points)

    def size_helps_dst(self) -> Iterator[Finding]:
        dst = (row for row in self.rows if row.method.name == "dst")
        sizes = sorted(dst, key=lambda row: row.members or 0)
        for smaller, larger in itertools.pairwise((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
            yield from self.compare([larger], [smaller], ["accuracy"])

    def size_costs_edst_members(self) -> Iterator[Finding]:
        sizes = self.of("edst", by="tickets")
        yield from self.compare(sizes[:1], sizes[-1:], ["member_accuracy"])
        yield from self.compare(sizes[-1:], self.of("dense"), ["accuracy"])

    def sparse_test_is_cheap(self) -> Iterator[Finding]:
        for one, other in itertools.product(self.of("edst", "dst"), self.of("snapshot", "fge")):
            yield from self.compare([one], [other], ["test_flops"])
            yield from self.compare([one], [other], ["accuracy"], "not less")

    def escape_rate_raises_diversity(self) -> Iterator[Finding]:
        rates = self.of("edst", by="escape_rate")
        yield from self.compare(rates[-1:], rates[:1], DIVERSITY)
        middle = min(rates, key=lambda row: abs(_option(row, "escape_rate") - 0.5))
        others = [row for row in rates if row is not middle]
        yield from self.compare([middle], others, ["accuracy"], "not less")

    def growth_matters_little(self) -> Iterator[Finding]:
        edst = self.of("edst")
        random = [row for row in edst if _option(row, "grow") == "random"]
        for one, other in itertools.product(random, [row for row in edst if row not in random]):
            yield from self.compare([one], [other], ["accuracy"], "alike")
            if one.dataset == "cifar100":
                yield from self.compare([one], [other], ["accuracy"])


def _option(row: Row, name: str) -> Any:
    return row.cells[0].options[name]
