"""Claims: what the paper concludes from a table, checked against what was measured."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .evidence import Claimed, Finding, Outcome, compare, correlates
from .experiment import Experiment, Row
from .results import Results

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
    datasets = dict.fromkeys(row.dataset for row in experiment.rows)
    for claim, dataset in itertools.product(experiment.claims, datasets):
        rows = [row for row in experiment.rows if row.dataset == dataset]
        findings = tuple(_CLAIMS[claim][1](_Measured(results, rows)))
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
        self,
        ones: Iterable[Row],
        others: Iterable[Row],
        columns: Iterable[str | Sequence[str]],
        claimed: Claimed = "more",
    ) -> Iterator[Finding]:
        """Each row of one side against each of the other, in each column or mean of several."""
        for one, other, column in itertools.product(ones, others, columns):
            yield compare(self.results, one, other, column, claimed)


Check = Callable[[_Measured], Iterable[Finding]]


def _option(row: Row, name: str) -> Any:
    return row.cells[0].options[name]


def _methods(
    ones: Sequence[str], others: Sequence[str], columns: Sequence[str], claimed: Claimed = "more"
) -> Check:
    """Checks the ensembles of some methods against those of others."""
    return lambda table: table.compare(table.of(*ones), table.of(*others), columns, claimed)


def _diversity_order(table: _Measured) -> Iterator[Finding]:
    order = (table.of(method)[:1] for method in ("dst", "static", "edst", "ltr"))
    for one, other in itertools.pairwise(filter(None, order)):
        yield from table.compare(one, other, DIVERSITY)


def _exploration_raises_diversity(table: _Measured) -> Iterator[Finding]:
    edst, columns = table.of("edst"), (*DIVERSITY, "accuracy")
    fixed = [row for row in edst if _option(row, "escape_rate") == 0]
    yield from table.compare([row for row in edst if row not in fixed], fixed, columns)
    yield from table.compare(table.of("dst"), table.of("static"), columns)


def _ensembles_help_ood(table: _Measured) -> Iterator[Finding]:
    columns = list(dict.fromkeys(column for row in table.rows for column in row.paper))
    # Where a set could not be had, the claim is about the others.
    had = [c for c in columns if any(table.results.values(row, c) for row in table.rows)]
    for row in table.of("static", "dst", "edst"):
        others = [replace(row, members=1), *table.of("dense")]
        yield from table.compare([row], others, [had or columns])


def _ensembles_help_under_attack(table: _Measured) -> Iterator[Finding]:
    for row in table.of("static", "dst", "edst"):
        yield from table.compare([row], [replace(row, members=1)], ["attacks.fgsm.mean"])


def _members_and_ensemble_correlate(table: _Measured) -> Iterator[Finding]:
    for method in dict.fromkeys(row.method.name for row in table.rows):
        points = [row for row in table.rows if row.method.name == method]
        if not points[0].over:  # a row for each sparsity
            over = {"sparsity": tuple(_option(row, "sparsity") for row in points)}
            points = [replace(points[0], label=points[0].label.partition(" ")[0], over=over)]
        yield from (correlates(table.results, row) for row in points)


def _size_helps_dst(table: _Measured) -> Iterator[Finding]:
    dst = (row for row in table.rows if row.method.name == "dst")
    sizes = sorted(dst, key=lambda row: row.members or 0)
    for smaller, larger in itertools.pairwise((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
        yield from table.compare([larger], [smaller], ["accuracy"])


def _size_costs_edst_members(table: _Measured) -> Iterator[Finding]:
    sizes = table.of("edst", by="tickets")
    yield from table.compare(sizes[:1], sizes[-1:], ["member_accuracy"])
    yield from table.compare(sizes[-1:], table.of("dense"), ["accuracy"])


def _sparse_test_is_cheap(table: _Measured) -> Iterator[Finding]:
    for one, other in itertools.product(table.of("edst", "dst"), table.of("snapshot", "fge")):
        yield from table.compare([one], [other], ["test_flops"])
        yield from table.compare([one], [other], ["accuracy"], "not less")


def _escape_rate_raises_diversity(table: _Measured) -> Iterator[Finding]:
    rates = table.of("edst", by="escape_rate")
    yield from table.compare(rates[-1:], rates[:1], DIVERSITY)
    middle = min(rates, key=lambda row: abs(_option(row, "escape_rate") - 0.5))
    others = [row for row in rates if row is not middle]
    yield from table.compare([middle], others, ["accuracy"], "not less")


def _growth_matters_little(table: _Measured) -> Iterator[Finding]:
    edst = table.of("edst")
    random = [row for row in edst if _option(row, "grow") == "random"]
    for one, other in itertools.product(random, [row for row in edst if row not in random]):
        yield from table.compare([one], [other], ["accuracy"], "alike")
        if one.dataset == "cifar100":
            yield from table.compare([one], [other], ["accuracy"])


# What each claim says, and what checks it.
_CLAIMS: dict[str, tuple[str, Check]] = {
    "ensembles-beat-dense": ("EDST and DST ensembles beat the single dense model in accuracy and "
        "NLL", _methods(("edst", "dst"), ("dense",), ("accuracy", "nll"))),
    "dst-matches-dense-ensemble": ("the DST ensemble is at least as good as the dense ensemble",
        _methods(("dst",), ("dense-ensemble",), ("accuracy", "nll"), "not less")),
    "dst-beats-static": ("DST beats static sparse training, member by member and as an ensemble",
        _methods(("dst",), ("static",), ("member_accuracy", "accuracy"))),
    "diversity-order": ("diversity: DST > static > EDST > LTR", _diversity_order),
    "exploration-raises-diversity": ("without exploration, EDST and DST are less diverse and less "
        "accurate", _exploration_raises_diversity),
    "edst-costs-less": ("EDST costs less to train than one dense model",
        _methods(("edst",), ("dense",), ("train_flops", "seconds"))),
    "ensembles-help-under-shift": ("EDST and DST ensembles have a lower cNLL and cECE than the "
        "single dense model", _methods(("edst", "dst"), ("dense",), ("c_nll", "c_ece"))),
    "ensembles-help-ood": ("ensembles tell unknown samples better than one of their members, and "
        "mostly than the single dense model", _ensembles_help_ood),
    "ensembles-help-under-attack": ("ensembles are more accurate under FGSM than one of their "
        "members", _ensembles_help_under_attack),
    "members-and-ensemble-correlate": ("the accuracies of members and ensemble correlate over "
        "sparsities", _members_and_ensemble_correlate),
    "size-helps-dst": ("the accuracy of the DST ensemble grows with its size", _size_helps_dst),
    "size-costs-edst-members": ("in the same time, more tickets make worse members of EDST, and "
        "an ensemble that still beats the single dense model", _size_costs_edst_members),
    "sparse-test-is-cheap": ("DST and EDST ensembles are as accurate as Snapshot and FGE, and far "
        "cheaper to test", _sparse_test_is_cheap),
    "escape-rate-raises-diversity": ("a larger escape rate q makes EDST more diverse; the accuracy "
        "is best at q = 0.5", _escape_rate_raises_diversity),
    "growth-matters-little": ("random and gradient growth differ little in EDST; random growth is "
        "better on CIFAR-100", _growth_matters_little),
}  # fmt: skip
CLAIMS = {claim: statement for claim, (statement, _) in _CLAIMS.items()}
