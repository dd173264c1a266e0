"""Claims: what is said of a table, checked against what was measured."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

from ..errors import FreeTicketsError, check_known
from ..metrics.score import column_of
from ..reading import must, read
from .evidence import Evidence
from .experiment import Experiment, Row, own_yaml
from .findings import Claimed, Comparison, Finding, Outcome, find
from .results import Results

DIVERSITY = ("diversity.disagreement", "diversity.kl")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What is said of rows, by the names of their methods or cells, in some columns."""

    says: str
    asked: str = "paper"  # who says it, or whose question it answers
    of: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()  # without any, a method of `_Rows` has the name of the claim
    versus: str = ""  # the column of the other side, if it is not the same
    claimed: Annotated[str, must("be a way to compare", lambda it: it in get_args(Claimed))] = (
        "more"
    )


CLAIMS: dict[str, Claim] = read(dict[str, Claim], own_yaml("claims.yaml"))


@dataclass(frozen=True)
class Verdict:
    """Whether the measurements bear out a claim on one data set."""

    claim: Claim
    dataset: str  # its key
    findings: tuple[Finding, ...]
    where: tuple[str, ...] = ()  # the tables that it was checked in

    @property
    def outcome(self) -> Outcome:
        """Supported, if every finding is; contradicted, if any is."""
        outcomes = {finding.outcome for finding in self.findings}
        if len(outcomes) == 1:
            return outcomes.pop()
        return "contradicted" if "contradicted" in outcomes else "undecided"


def judge(
    experiments: Sequence[Experiment], results: Results, claims: Mapping[str, Claim] = CLAIMS
) -> list[Verdict]:
    """Checks claims, each once on each data set, however many tables show its numbers.

    Those of the paper are checked in the tables that name them; others in all rows together.
    """
    verdicts, evidence = [], Evidence(results)
    for name, claim in claims.items():
        tables = [each for each in experiments if name in each.claims]
        if claims is not CLAIMS:
            rows = [row for each in experiments for row in each.rows]
            tables = [replace(experiments[0], paper="", rows=tuple(rows))]
        for dataset in dict.fromkeys(row.dataset for each in tables for row in each.rows):
            asked: list[Comparison] = []
            where = []
            for each in tables:
                rows = [row for row in each.rows if row.dataset == dataset]
                if own := list(_Rows(results, rows).compared(name, claim)):
                    where.append(each.paper)
                    asked += own
            if asked:
                verdicts.append(Verdict(claim, dataset, tuple(find(evidence, asked)), tuple(where)))
    return verdicts


def as_json(verdicts: Iterable[Verdict]) -> str:
    """Every finding with the cells and columns that it is about, for programs."""

    def side(row: Row | None) -> dict[str, Any] | None:
        if row is None:
            return None
        joined = None if row.of is None else row.of.name
        return {"cells": [cell.name for cell in row.cells], "members": row.members, "of": joined}

    def finding(each: Finding) -> dict[str, Any]:
        about, it = each.about, each.estimate
        shown = (
            None if it is None else [float(f"{x:.6g}") for x in (it.value, it.error, it.degrees)]
        )
        return {
            "one": side(about.one), "other": side(about.other), "columns": about.columns,
            "versus": about.versus, "claimed": about.claimed, "outcome": each.outcome,
            "value, error, freedom": shown,
        }  # fmt: skip

    found = [
        {"claim": it.claim.says, "dataset": it.dataset, "outcome": it.outcome,
         "findings": [finding(each) for each in it.findings]}
        for it in verdicts
    ]  # fmt: skip
    lines = (json.dumps(each).replace("Infinity", "null") for each in found)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def check_claims(claims: Mapping[str, Claim], rows: Iterable[Row]) -> None:
    """Raises if a claim is of no row, in an unknown column, or can't be checked."""
    names = list(dict.fromkeys(_name(row) for row in rows))
    for name, claim in claims.items():
        for each in (*claim.of, *claim.against):
            check_known(f"cell of the claim {name}", each, names)
        for column in claim.columns:
            if column_of(column) is None:
                raise FreeTicketsError(f"the claim {name} is about an unknown column {column!r}")
        if not (claim.columns or hasattr(_Rows, name.replace("-", "_"))):
            raise FreeTicketsError(f"the claim {name} must name columns")


@dataclass(frozen=True)
class _Rows:
    """The rows of a table on one data set, and what was measured of them."""

    results: Results
    rows: Sequence[Row]

    def of(self, *names: str, by: str = "") -> list[Row]:
        """The whole ensembles of some methods or cells, sorted by an option if one is named."""
        found = [row for row in self.rows if _name(row) in names and row.members is None]
        return sorted(found, key=lambda row: _option(row, by)) if by else found

    def compare(
        self, ones: Iterable[Row], others: Iterable[Row], columns: Iterable[str | Sequence[str]],
        claimed: str = "more", versus: str = "",
    ) -> Iterator[Comparison]:  # fmt: skip
        """Each row of one side against each of the other, in each column or mean of several."""
        for one, other, column in itertools.product(ones, others, columns):
            several = (column,) if isinstance(column, str) else tuple(column)
            yield Comparison(one, other, several, claimed, versus)

    def compared(self, name: str, claim: Claim) -> Iterable[Comparison]:
        """What decides a claim."""
        if not claim.columns:
            return getattr(self, name.replace("-", "_"))()
        sides = self.of(*claim.of), self.of(*claim.against)
        return self.compare(*sides, self.had(claim.columns), claim.claimed, claim.versus)

    def had(self, columns: Sequence[str]) -> Sequence[str]:
        """Those of sets of unknown images that could be had; the claim is about these."""

        def is_known(column: str) -> bool:
            return any(self.results.values(row, column) for row in self.rows)

        had = [each for each in columns if not each.startswith("ood.") or is_known(each)]
        return had or columns

    def first(self, row: Row) -> Row:
        """The first member of a row's ensemble alone, with the paper's numbers if it has any."""
        alone = replace(row, members=1, paper={})
        return next((r for r in self.rows if (r.cells, r.members) == (row.cells, 1)), alone)

    def diversity_order(self) -> Iterator[Comparison]:
        order = (self.of(method)[:1] for method in ("dst", "static", "edst", "ltr"))
        for one, other in itertools.pairwise(filter(None, order)):
            yield from self.compare(one, other, DIVERSITY)

    def exploration_raises_diversity(self) -> Iterator[Comparison]:
        edst, columns = self.of("edst"), (*DIVERSITY, "accuracy")
        fixed = [row for row in edst if _option(row, "escape_rate") == 0]
        yield from self.compare([row for row in edst if row not in fixed], fixed, columns)
        yield from self.compare(self.of("dst"), self.of("static"), columns)

    def ensembles_help_ood(self) -> Iterator[Comparison]:
        columns = self.had(list(dict.fromkeys(column for row in self.rows for column in row.paper)))
        for row in self.of("static", "dst", "edst"):
            yield from self.compare([row], [self.first(row), *self.of("dense")], [columns])

    def ensembles_help_under_attack(self) -> Iterator[Comparison]:
        for row in self.of("static", "dst", "edst"):
            yield from self.compare([row], [self.first(row)], ["attacks.fgsm.mean"])

    def members_and_ensemble_correlate(self) -> Iterator[Comparison]:
        for method in dict.fromkeys(row.method.name for row in self.rows):
            points = [row for row in self.rows if row.method.name == method]
            if not points[0].over:  # a row for each sparsity
                over = {"sparsity": tuple(_option(row, "sparsity") for row in points)}
                points = [replace(points[0], label=points[0].label.partition(" ")[0], over=over)]
            yield from (Comparison(row, None, ("correlation.pearson",)) for row in points)

    def size_helps_dst(self) -> Iterator[Comparison]:
        dst = (row for row in self.rows if row.method.name == "dst")
        sizes = sorted(dst, key=lambda row: row.members or 0)
        for smaller, larger in itertools.pairwise((sizes[0], sizes[len(sizes) // 2], sizes[-1])):
            yield from self.compare([larger], [smaller], ["accuracy"])

    def size_costs_edst_members(self) -> Iterator[Comparison]:
        sizes = self.of("edst", by="tickets")
        yield from self.compare(sizes[:1], sizes[-1:], ["member_accuracy"])
        yield from self.compare(sizes[-1:], self.of("dense"), ["accuracy"])

    def sparse_test_is_cheap(self) -> Iterator[Comparison]:
        for one, other in itertools.product(self.of("edst", "dst"), self.of("snapshot", "fge")):
            yield from self.compare([one], [other], ["test_flops"])
            yield from self.compare([one], [other], ["accuracy"], "not less")

    def escape_rate_raises_diversity(self) -> Iterator[Comparison]:
        rates = self.of("edst", by="escape_rate")
        yield from self.compare(rates[-1:], rates[:1], DIVERSITY)
        middle = min(rates, key=lambda row: abs(_option(row, "escape_rate") - 0.5))
        others = [row for row in rates if row is not middle]
        yield from self.compare([middle], others, ["accuracy"], "not less")

    def growth_matters_little(self) -> Iterator[Comparison]:
        edst = self.of("edst")
        random = [row for row in edst if _option(row, "grow") == "random"]
        for one, other in itertools.product(random, [row for row in edst if row not in random]):
            yield from self.compare([one], [other], ["accuracy"], "alike")
            if one.dataset == "cifar100":
                yield from self.compare([one], [other], ["accuracy"])


def _name(row: Row) -> str:
    """A cell's own name without that of its data set; else its method's."""
    return row.cell.removeprefix(f"{row.dataset}-") or row.method.name


def _option(row: Row, name: str) -> Any:
    return row.cells[0].options[name]
