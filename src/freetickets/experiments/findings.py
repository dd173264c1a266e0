"""Findings: two rows compared in a score, and what that decides by the rule of docs/reproduce.md.

The rule is the same for supported and contradicted. The paper's own numbers have no spread: they
only lie on a claim's side or on the other.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

from ..metrics.score import column_of, p_text
from ..metrics.significance import LEVEL, Estimate, holm
from .evidence import RATIOS, Evidence
from .experiment import Row

Outcome = Literal["supported", "undecided", "contradicted", "not measured"]
Claimed = Literal["more", "not less", "alike"]

SIGNS: dict[Outcome, str] = dict(zip(get_args(Outcome), "✓~✗–", strict=True))
# What is taken for equal where the paper says "as good" or "differ little": about what methods that
# it calls equal differ by in its own tables.
MARGINS = {"accuracy": 0.005, "nll": 0.02}


class Form(NamedTuple):
    """How a difference is written."""

    transform: Callable[[float], float] = float
    scale: int = 1
    sign: str = "+"
    digits: int = 3
    unit: str = ""

    def text(self, value: float) -> str:
        """A difference without its unit."""
        return f"{self.scale * self.transform(value):{self.sign}.{self.digits}f}"


_POINTS, _RATIO = Form(float, 100, "+", 2, " points"), Form(math.exp, 1, "", 2, "x")
_COEFFICIENT = Form(math.tanh, 1, "", 3)


class Contrast(NamedTuple):
    """What one finding is about: two rows, or the cells of one, in a column or mean of several."""

    one: Row
    other: Row | None
    columns: tuple[str, ...]
    claimed: str = "more"
    versus: str = ""

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes two of them one finding, whichever table it stands in."""
        rows = [(row.cells, row.members) for row in (self.one, self.other) if row is not None]
        return *rows, self.columns, self.claimed

    @property
    def title(self) -> str:
        """The number that is compared."""
        column = column_of(self.columns[0])
        assert column is not None, f"experiments have no column {self.columns[0]}"
        if len(self.columns) == 1:
            return column.title
        return f"mean {column.title.rpartition(' ')[2]} of {len(self.columns)} sets"

    @property
    def form(self) -> Form:
        """How its difference is written."""
        column = column_of(self.columns[0])
        if self.other is None:
            return _COEFFICIENT
        if self.columns[0] in RATIOS:
            return _RATIO
        return _POINTS if column is not None and column.is_share else Form()

    @property
    def sign(self) -> int:
        """What a difference is multiplied by to be positive where the first is better."""
        column = column_of(self.columns[0])
        return 1 if column is None else column.sign

    @property
    def margin(self) -> float:
        """What is taken for equal."""
        return 0.0 if self.claimed == "more" else MARGINS.get(self.columns[0], 0.0)

    @property
    def what(self) -> str:
        """The comparison in words."""
        if self.other is None:
            return f"{_label(self.one)}: Pearson's coefficient over {len(self.one.cells)} runs"
        return f"{_label(self.one)} against {_label(self.other)}: {self.title}"

    @property
    def sides(self) -> list[float]:
        """The paper's own numbers of each side; none where it has not both."""
        rows = [self.one] if self.other is None else [self.one, self.other]
        dense = {"train_flops": 1.0}  # printed as FLOPs, of which the others are multiples
        told = [{**(dense if row.dense_flops else {}), **row.paper} for row in rows]
        if any(column not in own for own in told for column in self.columns):
            return []
        return [statistics.fmean(own[column] for column in self.columns) for own in told]


@dataclass(frozen=True)
class Finding:
    """One comparison that bears on a claim, and what it decides among those of the claim."""

    about: Contrast
    outcome: Outcome = "not measured"
    estimate: Estimate | None = None  # of costs the logarithm of a ratio; None if not measured
    noise: str = ""  # what is known of its noise
    p: float | None = None  # adjusted, on the side where it lies; None if that is not known
    detectable: float | None = None  # what could have been seen, if nothing was decided

    @property
    def effect(self) -> str:
        """The difference, with its interval if it has one."""
        if self.estimate is None:
            return ""
        form, text = self.about.form, self.about.form.text(self.estimate.value)
        if self.estimate.error:
            low, high = (form.text(bound).lstrip("+") for bound in self.estimate.interval())
            text += f" [{low}, {high}]"
        return text + form.unit

    @property
    def text(self) -> str:
        """The finding in words."""
        if self.estimate is None:
            return self.about.what
        more = ""
        if self.p is not None and self.estimate.error:
            more = f"; p {p_text(self.p)}"
        if self.detectable is not None:
            form = self.about.form
            seen = form.text(self.detectable).lstrip("+")
            more += f"; {seen}{form.unit} would have been seen"
        return f"{self.about.what} {self.effect} ({self.noise}{more})"

    @property
    def printed(self) -> Outcome:
        """On which side of the claim the paper's own numbers lie; neither, if they are equal."""
        if not (sides := self.about.sides):
            return "not measured"
        # A ratio lies on the side where the difference does; shares are printed in per cent.
        gap = sides[0] - (sides[1] if len(sides) > 1 else 0.0)
        gain, margin = self.about.sign * gap / self.about.form.scale, self.about.margin + 1e-9
        if self.about.claimed == "more":
            return "supported" if gain > 1e-9 else "contradicted" if gain < -1e-9 else "undecided"
        near = abs(gain) if self.about.claimed == "alike" else -gain
        return "supported" if near <= margin else "contradicted"


def marked(outcome: Outcome) -> str:
    """An outcome with its sign, so that it is seen at a glance and without colour."""
    return f"{SIGNS[outcome]} {outcome}"


def tally(outcomes: Iterable[Outcome]) -> str:
    """How many there are of each outcome."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[each]} {each}" for each in SIGNS if counts[each])


def find(evidence: Evidence, comparisons: Iterable[Contrast]) -> list[Finding]:
    """What is found of a claim: each comparison is decided once, and with the others in view."""
    unique: dict[Any, Contrast] = {}
    for each in comparisons:
        if each.identity not in unique or each.sides:
            unique[each.identity] = each
    findings, places = [], []
    for about in unique.values():
        one, other, columns, _, versus = about
        if other is None:
            measured = evidence.correlation(one)
        else:
            measured = evidence.compare(one, other, columns, versus)
        if measured is None:
            findings.append(Finding(about))
            continue
        if measured.decides:
            places.append(len(findings))
        findings.append(Finding(about, "undecided", measured.estimate, measured.noise))
    tests = [_tests(findings[place]) for place in places]
    adjusted = [holm(ps) for ps in zip(*tests, strict=True)] if tests else []
    for place, *ps in zip(places, *adjusted, strict=True) if adjusted else ():
        findings[place] = _decided(findings[place], ps[0], ps[1], len(places))
    return findings


def _gain(finding: Finding) -> Estimate:
    assert finding.estimate is not None
    return replace(finding.estimate, value=finding.about.sign * finding.estimate.value)


def _tests(finding: Finding) -> tuple[float, float]:
    """The p-values by which a finding may support its claim and contradict it."""
    gain, margin = _gain(finding), finding.about.margin
    if finding.about.claimed == "more":
        return gain.p(), gain.p()
    loss = replace(gain, value=-gain.value)
    if finding.about.claimed == "not less":
        return gain.p_above(-margin), loss.p(margin) if loss.value > margin else 1.0
    beyond = max(gain, loss, key=lambda side: side.value)
    within = max(gain.p_above(-margin), loss.p_above(-margin))
    return within, beyond.p(margin) if beyond.value > margin else 1.0


def _decided(finding: Finding, support: float, against: float, tests: int) -> Finding:
    gain = _gain(finding)
    ahead = gain.value > 0 or finding.about.claimed != "more"
    behind = gain.value < 0 or finding.about.claimed != "more"
    if support <= LEVEL and ahead:
        return replace(finding, outcome="supported", p=support)
    if against <= LEVEL and behind:
        return replace(finding, outcome="contradicted", p=against)
    seen = gain.detectable(tests) if gain.error else None
    return replace(finding, p=support, detectable=seen)


def _label(row: Row) -> str:
    if row.members is None or f"M={row.members}" in row.label:
        return row.label
    return f"{row.label}, first member" if row.members == 1 else f"{row.label}, {row.members} first"
