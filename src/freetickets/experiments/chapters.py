"""Chapters: what the page of results says, whatever form it is written in."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .. import __version__
from ..report.parts import Section, Table
from .claims import Verdict, judge
from .evidence import marked, tally
from .experiment import Experiment
from .gallery import Gallery
from .results import Results
from .scales import SCALES
from .tables import footnotes, measured_table, stand_notes, stands_table, verdict_table

READING = (
    "Mean ± standard deviation over seeds; in brackets the paper's number. Accuracies are in per "
    "cent; FLOPs are multiples of one dense training, or of one dense network's prediction."
)
RULE = (
    "A claim is supported where every difference that it speaks of is more than two standard "
    "errors on its side, contradicted where any is as far on the other, and undecided within "
    "noise. Differences are of the first named minus the second, so a lower NLL is below 0; costs "
    "are ratios. Errors are over shared seeds; with one seed, over test samples, which does not "
    'show what another training would give. "As good" and "differ little" allow half a point of '
    "accuracy and 0.02 of NLL. Of few seeds this is weak evidence: where nothing differs, chance "
    "takes a difference beyond two standard errors in 18 % of cases with three seeds and in 30 % "
    "with two, and a claim with many differences is easily contradicted by one of them."
)


@dataclass(frozen=True)
class Line:
    """A line of a list: a text behind some words in bold, and lines below it."""

    text: str
    bold: str = ""
    below: Sequence[Line] = ()


@dataclass(frozen=True)
class Chapter:
    """All that the page says of one table or figure of the paper."""

    experiment: Experiment
    table: Table
    notes: Sequence[Line]
    verdicts: Sequence[Verdict]
    figures: Sequence[Section]
    comment: str
    command: str

    @property
    def title(self) -> str:
        """What it is of, and about."""
        return f"{self.experiment.paper}: {self.experiment.title}"

    @property
    def tally(self) -> str:
        """What becomes of the claims, in a few words."""
        return f"Claims: {tally(verdict.outcome for verdict in self.verdicts)}"

    @property
    def claims(self) -> list[Line]:
        """The claims, each with the differences that decide it."""
        return [
            Line(
                f"{verdict.statement} ({verdict.dataset})",
                marked(verdict.outcome),
                [Line(each.text, marked(each.outcome)) for each in verdict.findings],
            )
            for verdict in self.verdicts
        ]


@dataclass(frozen=True)
class Summary:
    """What stands at the top of the page, and the chapters that follow.

    Attributes:
        title: Names the scale.
        lead: What the scale is for, and what it took.
        comment: What is to be said besides.
        stands: What stood for the paper's data and networks.
        notes: Which further sets stood for others.
        tally: How many checks there were of claims, and what came out.
        verdicts: The claims, and where each was checked.
        chapters: One for each table or figure.
    """

    title: str
    lead: str
    comment: str
    stands: Table
    notes: Sequence[Line]
    tally: str
    verdicts: Table
    chapters: Sequence[Chapter]


def gather(
    experiments: Sequence[Experiment],
    results: Results,
    comments: Mapping[str, str],
    figures: Collection[str] | None = None,
) -> Summary:
    """Computes and draws all that the page shows; the arguments are those of `page.write`."""
    gallery = Gallery(results, figures)
    scales = sorted({str(each.get("scale")) for each in results.records.values()})
    flag = f" --scale {scales[0]}" if len(scales) == 1 else ""
    chapters = [
        Chapter(
            experiment,
            measured_table(experiment, results),
            [Line(note) for note in footnotes(experiment, results)],
            judge(experiment, results),
            gallery.sections(experiment),
            comments.get(experiment.name, ""),
            f"freetickets reproduce {experiment.name}{flag}",
        )
        for experiment in experiments
    ]
    verdicts = [(chapter.experiment, each) for chapter in chapters for each in chapter.verdicts]
    counts = tally(verdict.outcome for _, verdict in verdicts)
    return Summary(
        f"The paper's tables, measured at the scale {' and '.join(scales) or 'none'}",
        " ".join([*_purposes(scales), _price(results)]),
        comments.get("", ""),
        stands_table(experiments, results),
        [Line(note) for note in stand_notes(results)],
        f"Of {len(verdicts)} checks: {counts}." if verdicts else "No claim was checked.",
        verdict_table(verdicts),
        chapters,
    )


def _purposes(scales: Sequence[str]) -> list[str]:
    return [f"Scale {name}: {SCALES[name].summary}." for name in scales if name in SCALES]


def _price(results: Results) -> str:
    seconds = [each.get("seconds", {}) for each in results.records.values()]
    training, evaluation = (
        math.fsum(each.get(part, 0.0) for each in seconds) / 3600
        for part in ("training", "evaluation")
    )
    return (
        f"{len(seconds)} runs in {training + evaluation:.2f} hours of machine time "
        f"({training:.2f} of training, {evaluation:.2f} of evaluation). Made by FreeTickets "
        f"{__version__}."
    )
