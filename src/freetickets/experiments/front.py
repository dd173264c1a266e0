"""The front of a scale with stages: what was found, its claims on one screen, its main figure."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from ..metrics.score import MAIN_SCORES
from ..report.figures.points import Mark, quality_panel
from ..report.parts import Figure, Folded, Part, Section, Stack, Text
from . import tables
from .claims import Verdict
from .experiment import Experiment, Row, own_yaml, title_of_data
from .findings import tally
from .results import Results
from .timing import LATER, OURS, PYTORCH

_TEXTS: dict[str, dict[str, str]] = own_yaml("sections.yaml")


def front(
    experiments: Sequence[Experiment], results: Results, verdicts: Sequence[Verdict], details: Part
) -> list[Section]:
    """The sections that come first; the first claim is what the scale is about.

    `details` stand below the table of claims.
    """
    counts = f"Of {len(verdicts)} checks: {tally(verdict.outcome for verdict in verdicts)}."
    about = verdicts[0].claim if verdicts else None
    lines = [_headline(each, results) for each in verdicts if each.claim is about]
    texts = [*(Text(line) for line in lines if line), Text(counts, "strong")]
    begun = [each for each in verdicts if each.outcome != "not measured"]
    says, datasets = ({each.claim.says for each in begun}, {each.dataset for each in begun})
    shown = [it for it in verdicts if it.claim.says in says and it.dataset in datasets]
    later = dict.fromkeys(it.claim.says for it in verdicts if it.claim.says not in says)
    later |= dict.fromkeys(
        f"all of {title_of_data(it.dataset)}" for it in verdicts if it.dataset not in datasets
    )
    waiting = [Folded("Not run yet", Text("; ".join(later)))] if later else []
    found = Stack([*texts, tables.verdict_table(shown, effects=True), *waiting, details])
    sections = [Section(**_TEXTS["found"], body=found, key="found", chapter="Summary")]
    every = [row for each in experiments for row in each.rows]
    rows = [row for row in every if row.dataset == every[0].dataset]
    across = "training seconds, × dense in PyTorch"
    panels = [
        quality_panel(marks, score, across, "dense in PyTorch")
        for score in MAIN_SCORES[:2]
        if (marks := list(_marks(rows, results, score.key)))
    ]
    if panels:
        body = Figure(panels, "seconds")
        sections.append(Section(**_TEXTS["seconds"], body=body, chapter="Summary"))
    return sections


def _headline(verdict: Verdict, results: Results) -> str:
    """What was found on one data set, and what it cost."""
    found = [each for each in verdict.findings if each.estimate is not None]
    if not found:
        return ""
    one, other = found[0].about.one, found[0].about.other
    assert other is not None, "a headline compares two rows"
    effects = ", ".join(f"{each.about.title} {each.effect}" for each in found)
    ours = LATER if _mean(results, one, LATER) else OURS  # with the newest kernels
    text = f"{title_of_data(verdict.dataset)}: {one.label} against {other.label}: {effects}"
    told = [
        f"{mine / theirs:.2f}x {words}"
        for column, versus, words in (
            ("train_flops", "train_flops", f"the training FLOPs of {other.label}"),
            (ours, PYTORCH, "its seconds in PyTorch"),
            (ours, ours, "its seconds on our kernels"),
        )
        if (mine := _mean(results, one, column)) and (theirs := _mean(results, other, versus))
    ]
    return f"{text}. It takes {', '.join(told)}." if told else f"{text}."


def _marks(rows: Sequence[Row], results: Results, score: str) -> Iterator[Mark]:
    """What each row that was timed costs and scores; dense networks on both kernels."""
    for row in rows:
        ensemble = _mean(results, row, score)
        mean = _mean(results, row, f"member_{score}")
        for column, words in ((OURS, ""), (PYTORCH, "PyTorch: ")):
            cost = _mean(results, row, column)
            if ensemble is not None and cost is not None:
                member = ensemble if mean is None else mean
                yield Mark(f"{words}{row.label}", cost, member, ensemble)


def _mean(results: Results, row: Row, column: str) -> float | None:
    values = results.values(row, column)
    return fmean(values) if values else None
