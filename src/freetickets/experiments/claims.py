"""Claims: what is said of a table, checked against what was measured."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, get_args

from ..errors import FreeTicketsError, check_known
from ..metrics.score import column_of
from ..reading import must, read
from .evidence import Evidence
from .experiment import Experiment, Row, own_yaml
from .findings import Claimed, Contrast, Finding, Outcome, find
from .results import Results

FIRST = "first member"  # whose name stands for that of the same ensemble


@dataclass(frozen=True, kw_only=True)
class Question:
    """Findings: rows by what they, their cells or methods are called, and what is compared."""

    of: tuple[str, ...] = ()
    against: tuple[str, ...] = ()  # none for a correlation over the rows of one side
    columns: tuple[str, ...] = ()
    mean: bool = False  # whether the mean of the columns is compared, not each
    versus: str = ""  # the column of the other side, if it is not the same
    claimed: Annotated[str, must("be a way to compare", lambda it: it in get_args(Claimed))] = (
        "more"
    )
    datasets: tuple[str, ...] = ()  # on which it is claimed; on all if empty


@dataclass(frozen=True, kw_only=True)
class Claim(Question):
    """What is said of tables: findings of one kind, or of several that it lists."""

    says: str
    asked: str = "paper"  # who says it, or whose question it answers
    findings: tuple[Question, ...] = ()

    @property
    def parts(self) -> tuple[Question, ...]:
        """All that it consists of."""
        return self.findings or (self,)


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
            asked: list[Contrast] = []
            where = []
            for each in tables:
                rows = [row for row in each.rows if row.dataset == dataset]
                if own := list(_Rows(results, each.columns, rows).compared(claim)):
                    where.append(each.paper)
                    asked += own
            if asked:
                verdicts.append(Verdict(claim, dataset, tuple(find(evidence, asked)), tuple(where)))
    return verdicts


def check_claims(claims: Mapping[str, Claim], rows: Iterable[Row]) -> None:
    """Raises if a claim is of no row, in an unknown column, or can't be checked."""
    names = {name for row in rows for name in _names(row)} | {FIRST}
    for claim, part in ((name, part) for name, it in claims.items() for part in it.parts):
        for each in (*part.of, *part.against):
            check_known(f"row of the claim {claim}", each, names)
        for column in part.columns:
            if column_of(column) is None:
                raise FreeTicketsError(f"the claim {claim} is about an unknown column {column!r}")
        if not (part.of and part.columns):
            raise FreeTicketsError(f"the claim {claim} must say of which rows it is, and columns")


@dataclass(frozen=True)
class _Rows:
    """The rows of a table on one data set, its columns, and what was measured of them."""

    results: Results
    columns: Sequence[str]
    rows: Sequence[Row]

    def compared(self, claim: Claim) -> Iterator[Contrast]:
        """What decides a claim."""
        for part in claim.parts:
            if part.datasets and self.rows[0].dataset not in part.datasets:
                continue
            if not part.against:
                for name in part.of:
                    if rows := self._called([name]):
                        yield Contrast(_swept(rows), None, part.columns)
                continue
            had = tuple(filter(self._was_had, part.columns))
            columns = [had] if part.mean and had else [(each,) for each in had]
            for one, name in itertools.product(self._called(part.of), part.against):
                others = [self._first(one)] if name == FIRST else self._called([name])
                for other, several in itertools.product(others, columns):
                    yield Contrast(one, other, several, part.claimed, part.versus)

    def _called(self, names: Sequence[str]) -> list[Row]:
        return [row for row in self.rows if not _names(row).isdisjoint(names)]

    def _was_had(self, column: str) -> bool:
        """Not each data set has each set of unknown images: the claim is about those it has."""
        if not column.startswith("ood."):
            return True
        known = any(self.results.values(row, column) for row in self.rows)
        nothing = not any(self.results.seeds(cell) for row in self.rows for cell in row.cells)
        return column in self.columns and (known or nothing)

    def _first(self, row: Row) -> Row:
        """The first member of a row's ensemble alone, with the paper's numbers if it has any."""
        alone = replace(row, members=1, paper={})
        return next((r for r in self.rows if (r.cells, r.members) == (row.cells, 1)), alone)


def _names(row: Row) -> set[str]:
    """What a claim may call a row: its label; its cell without the data set, or its method."""
    own = row.cell.removeprefix(f"{row.dataset}-")
    return {row.label, own or row.method.name} if row.members is None else {row.label}


def _swept(rows: Sequence[Row]) -> Row:
    """One row of all sparsities, where each has one of its own."""
    first, sparsities = rows[0], tuple(row.cells[0].options["sparsity"] for row in rows)
    if first.over:
        return first
    return replace(first, label=first.label.partition(" ")[0], over={"sparsity": sparsities})
