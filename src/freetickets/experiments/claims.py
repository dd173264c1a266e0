"""Claims: what the paper concludes from a table, checked against what was measured."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from .evidence import Claimed, Finding, Outcome, compare, correlates
from .experiment import Experiment, Row
from .results import Results

Rows = Sequence[Row]
Check = Callable[[Results, Rows], Iterable[Finding]]

DIVERSITY = ("diversity.disagreement", "diversity.kl")


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
    for claim, dataset in itertools.product(
        experiment.claims, dict.fromkeys(row.dataset for row in experiment.rows)
    ):
        rows = [row for row in experiment.rows if row.dataset == dataset]
        findings = tuple(_CLAIMS[claim][1](results, rows))
        outcomes = {finding.outcome for finding in findings}
        overall: Outcome = "undecided"
        if "contradicted" in outcomes:
            overall = "contradicted"
        elif outcomes == {"supported"}:
            overall = "supported"
        elif outcomes <= {"not measured"}:
            overall = "not measured"
        verdicts.append(Verdict(claim, dataset, overall, findings))
    return verdicts


def _of(rows: Rows, *methods: str) -> list[Row]:
    """The whole ensembles of some methods."""
    return [row for row in rows if row.method.name in methods and row.members is None]


def _option(row: Row, name: str) -> float:
    return float(row.cells[0].options[name])


def _against(
    results: Results, ones: Rows, others: Rows, columns: Iterable[str], claimed: Claimed = "more"
) -> Iterator[Finding]:
    for one, other, column in itertools.product(ones, others, columns):
        yield compare(results, one, other, column, claimed)


def _methods(
    ones: Sequence[str], others: Sequence[str], columns: Sequence[str], claimed: Claimed = "more"
) -> Check:
    """Checks the ensembles of some methods against those of others."""
    return lambda results, rows: _against(
        results, _of(rows, *ones), _of(rows, *others), columns, claimed
    )


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
            over = {"sparsity": tuple(_option(row, "sparsity") for row in points)}
            label = points[0].label.partition(" ")[0]
            yield correlates(results, replace(points[0], label=label, over=over))


def _size_helps_dst(results: Results, rows: Rows) -> Iterator[Finding]:
    dst = (row for row in rows if row.method.name == "dst")
    sizes = sorted(dst, key=lambda row: row.members or 0)
    for smaller, larger in itertools.pairwise((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
        yield compare(results, larger, smaller, "accuracy")


def _size_costs_edst_members(results: Results, rows: Rows) -> Iterator[Finding]:
    sizes = sorted(_of(rows, "edst"), key=lambda row: _option(row, "tickets"))
    yield compare(results, sizes[0], sizes[-1], "member_accuracy")
    yield from _against(results, sizes[-1:], _of(rows, "dense"), ["accuracy"])


def _sparse_test_is_cheap(results: Results, rows: Rows) -> Iterator[Finding]:
    for one, other in itertools.product(_of(rows, "edst", "dst"), _of(rows, "snapshot", "fge")):
        yield compare(results, one, other, "test_flops")
        yield compare(results, one, other, "accuracy", "not less")


def _escape_rate_raises_diversity(results: Results, rows: Rows) -> Iterator[Finding]:
    rates = sorted(_of(rows, "edst"), key=lambda row: _option(row, "escape_rate"))
    yield from _against(results, rates[-1:], rates[:1], DIVERSITY)
    middle = min(rates, key=lambda row: abs(_option(row, "escape_rate") - 0.5))
    others = [row for row in rates if row is not middle]
    yield from _against(results, [middle], others, ["accuracy"], "not less")


def _growth_matters_little(results: Results, rows: Rows) -> Iterator[Finding]:
    edst = _of(rows, "edst")
    random = [row for row in edst if row.cells[0].options["grow"] == "random"]
    gradient = [row for row in edst if row not in random]
    for one, other in itertools.product(random, gradient):
        yield compare(results, one, other, "accuracy", "alike")
        if one.dataset == "cifar100":
            yield compare(results, one, other, "accuracy")


# What each claim says, and what checks it.
_CLAIMS: dict[str, tuple[str, Check]] = {
    "ensembles-beat-dense": (
        "EDST and DST ensembles beat the single dense model in accuracy and NLL",
        _methods(("edst", "dst"), ("dense",), ("accuracy", "nll")),
    ),
    "dst-matches-dense-ensemble": (
        "the DST ensemble is at least as good as the dense ensemble",
        _methods(("dst",), ("dense-ensemble",), ("accuracy", "nll"), "not less"),
    ),
    "dst-beats-static": (
        "DST beats static sparse training, member by member and as an ensemble",
        _methods(("dst",), ("static",), ("member_accuracy", "accuracy")),
    ),
    "diversity-order": ("diversity: DST > static > EDST > LTR", _diversity_order),
    "exploration-raises-diversity": (
        "without exploration, EDST and DST are less diverse and less accurate",
        _exploration_raises_diversity,
    ),
    "edst-costs-less": (
        "EDST costs less to train than one dense model",
        _methods(("edst",), ("dense",), ("train_flops", "seconds")),
    ),
    "ensembles-help-under-shift": (
        "EDST and DST ensembles have a lower cNLL and cECE than the single dense model",
        _methods(("edst", "dst"), ("dense",), ("c_nll", "c_ece")),
    ),
    "ensembles-help-ood": (
        "ensembles tell unknown samples better than one of their members, and mostly than the "
        "single dense model",
        _ensembles_help_ood,
    ),
    "ensembles-help-under-attack": (
        "ensembles are more accurate under FGSM than one of their members",
        _ensembles_help_under_attack,
    ),
    "members-and-ensemble-correlate": (
        "the accuracies of members and ensemble correlate over sparsities",
        _members_and_ensemble_correlate,
    ),
    "size-helps-dst": ("the accuracy of the DST ensemble grows with its size", _size_helps_dst),
    "size-costs-edst-members": (
        "in the same time, more tickets make worse members of EDST, and an ensemble that still "
        "beats the single dense model",
        _size_costs_edst_members,
    ),
    "sparse-test-is-cheap": (
        "DST and EDST ensembles are as accurate as Snapshot and FGE, and far cheaper to test",
        _sparse_test_is_cheap,
    ),
    "escape-rate-raises-diversity": (
        "a larger escape rate q makes EDST more diverse; the accuracy is best at q = 0.5",
        _escape_rate_raises_diversity,
    ),
    "growth-matters-little": (
        "random and gradient growth differ little in EDST; random growth is better on CIFAR-100",
        _growth_matters_little,
    ),
}
CLAIMS = {claim: statement for claim, (statement, _) in _CLAIMS.items()}
