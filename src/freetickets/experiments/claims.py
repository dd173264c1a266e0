"""Claims: what the paper concludes from a table, checked against what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .evidence import Finding, Outcome, compare, correlates
from .experiment import Experiment, Row
from .results import Results
from .vocabulary import CLAIMS

Rows = Sequence[Row]
Check = Callable[[Results, Rows], Iterable[Finding]]

DIVERSITY = ("diversity.disagreement", "diversity.kl")


@dataclass(frozen=True)
class Verdict:
    """Whether the measurements of a table bear out a claim on one data set.

    Attributes:
        claim: A key of `CLAIMS`.
        dataset: The key of the data set.
        outcome: Supported, if every finding is; contradicted, if any is.
        findings: The differences that it rests on.
    """

    claim: str
    dataset: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()

    @property
    def statement(self) -> str:
        """The claim in words."""
        return CLAIMS[self.claim]

    @property
    def text(self) -> str:
        """The numbers, those that speak against the claim first."""
        order = ("contradicted", "undecided", "supported", "not measured")
        findings = sorted(self.findings, key=lambda finding: order.index(finding.outcome))
        return "; ".join(f"{finding.text}: {finding.outcome}" for finding in findings)


def judge(experiment: Experiment, results: Results) -> list[Verdict]:
    """Checks the claims of a table or figure, each data set for itself."""
    datasets = dict.fromkeys(row.dataset for row in experiment.rows)
    return [
        _verdict(claim, dataset, _CHECKS[claim](results, rows))
        for claim in experiment.claims
        for dataset in datasets
        if (rows := [row for row in experiment.rows if row.dataset == dataset])
    ]


def _verdict(claim: str, dataset: str, findings: Iterable[Finding]) -> Verdict:
    found = tuple(findings)
    outcomes = {finding.outcome for finding in found}
    overall: Outcome = "undecided"
    if "contradicted" in outcomes:
        overall = "contradicted"
    elif outcomes == {"supported"}:
        overall = "supported"
    elif outcomes <= {"not measured"}:
        overall = "not measured"
    return Verdict(claim, dataset, overall, found)


def _of(rows: Rows, *methods: str) -> list[Row]:
    """The whole ensembles of some methods."""
    return [row for row in rows if row.method.name in methods and row.members is None]


def _option(row: Row, name: str) -> float:
    return float(row.cells[0].options[name])


def _against(
    results: Results, ones: Rows, others: Rows, columns: Iterable[str]
) -> Iterator[Finding]:
    columns = tuple(columns)
    for one in ones:
        for other in others:
            for column in columns:
                yield compare(results, one, other, column)


def _ensembles_beat_dense(results: Results, rows: Rows) -> Iterator[Finding]:
    yield from _against(results, _of(rows, "edst", "dst"), _of(rows, "dense"), ("accuracy", "nll"))


def _dst_matches_dense_ensemble(results: Results, rows: Rows) -> Iterator[Finding]:
    for one in _of(rows, "dst"):
        for other in _of(rows, "dense-ensemble"):
            for column in ("accuracy", "nll"):
                yield compare(results, one, other, column, "not less")


def _dst_beats_static(results: Results, rows: Rows) -> Iterator[Finding]:
    columns = ("member_accuracy", "accuracy")
    yield from _against(results, _of(rows, "dst"), _of(rows, "static"), columns)


def _diversity_order(results: Results, rows: Rows) -> Iterator[Finding]:
    order = ("dst", "static", "edst", "ltr")
    present = [found[0] for method in order if (found := _of(rows, method))]
    for one, other in itertools.pairwise(present):
        yield from _against(results, [one], [other], DIVERSITY)


def _exploration_raises_diversity(results: Results, rows: Rows) -> Iterator[Finding]:
    edst = _of(rows, "edst")
    exploring = [row for row in edst if _option(row, "escape_rate") > 0]
    fixed = [row for row in edst if _option(row, "escape_rate") == 0]
    yield from _against(results, exploring, fixed, (*DIVERSITY, "accuracy"))
    yield from _against(results, _of(rows, "dst"), _of(rows, "static"), (*DIVERSITY, "accuracy"))


def _edst_costs_less(results: Results, rows: Rows) -> Iterator[Finding]:
    columns = ("train_flops", "seconds")
    yield from _against(results, _of(rows, "edst"), _of(rows, "dense"), columns)


def _ensembles_help_under_shift(results: Results, rows: Rows) -> Iterator[Finding]:
    columns = ("c_nll", "c_ece")
    yield from _against(results, _of(rows, "edst", "dst"), _of(rows, "dense"), columns)


def _ensembles_help_ood(results: Results, rows: Rows) -> Iterator[Finding]:
    dense = _of(rows, "dense")
    columns = list(dict.fromkeys(column for row in rows for column in row.paper))
    # Where a set could not be had, the claim is about the others.
    columns = [c for c in columns if any(results.values(row, c) for row in rows)] or columns
    for row in _of(rows, "static", "dst", "edst"):
        yield compare(results, row, replace(row, members=1), columns)
        for other in dense:
            yield compare(results, row, other, columns)


def _ensembles_help_under_attack(results: Results, rows: Rows) -> Iterator[Finding]:
    for row in _of(rows, "static", "dst", "edst"):
        yield compare(results, row, replace(row, members=1), "attacks.fgsm.mean")


def _members_and_ensemble_correlate(results: Results, rows: Rows) -> Iterator[Finding]:
    for method in dict.fromkeys(row.method.name for row in rows):
        points = [row for row in rows if row.method.name == method]
        if points[0].over:
            yield from (correlates(results, row) for row in points)
        else:
            sparsities = tuple(_option(row, "sparsity") for row in points)
            label = points[0].label.partition(" ")[0]
            over = {"sparsity": sparsities}
            yield correlates(results, replace(points[0], label=label, over=over))


def _size_helps_dst(results: Results, rows: Rows) -> Iterator[Finding]:
    sizes = sorted(
        (row for row in rows if row.method.name == "dst"), key=lambda row: row.members or 0
    )
    steps = [sizes[0], sizes[len(sizes) // 2], sizes[-1]]
    for smaller, larger in itertools.pairwise(steps):
        yield compare(results, larger, smaller, "accuracy")


def _size_costs_edst_members(results: Results, rows: Rows) -> Iterator[Finding]:
    sizes = sorted(_of(rows, "edst"), key=lambda row: _option(row, "tickets"))
    yield compare(results, sizes[0], sizes[-1], "member_accuracy")
    yield from _against(results, sizes[-1:], _of(rows, "dense"), ["accuracy"])


def _sparse_test_is_cheap(results: Results, rows: Rows) -> Iterator[Finding]:
    for one in _of(rows, "edst", "dst"):
        for other in _of(rows, "snapshot", "fge"):
            yield compare(results, one, other, "test_flops")
            yield compare(results, one, other, "accuracy", "not less")


def _escape_rate_raises_diversity(results: Results, rows: Rows) -> Iterator[Finding]:
    rates = sorted(_of(rows, "edst"), key=lambda row: _option(row, "escape_rate"))
    yield from _against(results, rates[-1:], rates[:1], DIVERSITY)
    middle = min(rates, key=lambda row: abs(_option(row, "escape_rate") - 0.5))
    for other in rates:
        if other is not middle:
            yield compare(results, middle, other, "accuracy", "not less")


def _growth_matters_little(results: Results, rows: Rows) -> Iterator[Finding]:
    edst = _of(rows, "edst")
    random = [row for row in edst if row.cells[0].options["grow"] == "random"]
    gradient = [row for row in edst if row not in random]
    for one in random:
        for other in gradient:
            yield compare(results, one, other, "accuracy", "alike")
            if one.dataset == "cifar100":
                yield from _against(results, [one], [other], ["accuracy"])


_CHECKS: dict[str, Check] = {
    "ensembles-beat-dense": _ensembles_beat_dense,
    "dst-matches-dense-ensemble": _dst_matches_dense_ensemble,
    "dst-beats-static": _dst_beats_static,
    "diversity-order": _diversity_order,
    "exploration-raises-diversity": _exploration_raises_diversity,
    "edst-costs-less": _edst_costs_less,
    "ensembles-help-under-shift": _ensembles_help_under_shift,
    "ensembles-help-ood": _ensembles_help_ood,
    "ensembles-help-under-attack": _ensembles_help_under_attack,
    "members-and-ensemble-correlate": _members_and_ensemble_correlate,
    "size-helps-dst": _size_helps_dst,
    "size-costs-edst-members": _size_costs_edst_members,
    "sparse-test-is-cheap": _sparse_test_is_cheap,
    "escape-rate-raises-diversity": _escape_rate_raises_diversity,
    "growth-matters-little": _growth_matters_little,
}
