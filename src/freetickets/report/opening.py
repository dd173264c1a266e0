"""The sentence that a page opens with: what was found, by how much, and at which cost."""

import math

from ..metrics import Difference
from ..metrics.score import MAIN_SCORES, Score
from .comparison import Comparison
from .run import RunSummary


def opening(comparison: Comparison) -> str:
    """How the best run differs from the reference, or what a single one scores; may be empty."""
    reference, found = comparison.reference, comparison.differences
    if len(comparison.runs) == 1:
        return _alone(reference)
    if not found:
        return ""
    score = MAIN_SCORES[1]
    runs = {run.name: run for run in comparison.runs}
    scored = {name: runs[name].results.ensemble[score.key] for name in found}
    best = min(scored, key=lambda name: (math.isnan(scored[name]), scored[name]))
    lead = f"Of {len(found)} runs besides {reference.name}, {best} has the lowest {score.title}. "
    groups: dict[str, list[str]] = {"better": [], "worse": [], "no different within noise": []}
    for each in MAIN_SCORES:
        gap = found[best].scores[each.key]
        if not math.isnan(gap.value):
            groups[_side(gap, each)].append(_by_how_much(gap, each))
    than = f"than {reference.name} "
    told = []
    for side, texts in groups.items():
        if texts:
            told.append(f"{side} {than}in {' and '.join(texts)}")
            than = ""
    cost = _cost(runs[best], reference)
    return f"{lead * (len(found) > 1)}{best} is {', '.join(told)}; it took {cost}." if told else ""


def _side(gap: Difference, score: Score) -> str:
    if gap.low <= 0 <= gap.high:
        return "no different within noise"
    return "better" if (gap.value > 0) == score.higher_is_better else "worse"


def _by_how_much(gap: Difference, score: Score) -> str:
    scale, digits, unit = (100, 2, " points") if score.is_share else (1, 4, "")
    value = f"{scale * gap.value:+.{digits}f}"
    low, high = (f"{scale * it:.{digits}f}" for it in (gap.low, gap.high))
    return f"{score.title} ({value}{unit} [{low}, {high}])"


def _cost(run: RunSummary, reference: RunSummary) -> str:
    ours, theirs = run.ledger, reference.ledger
    flops = f"{ours.flops / theirs.flops:.2f}x the training FLOPs"
    if not (ours.seconds > 0 and theirs.seconds > 0):
        return flops
    return f"{flops} and {ours.seconds / theirs.seconds:.2f}x the seconds"


def _alone(run: RunSummary) -> str:
    shown = run.results.task.scores
    scores = [f"{it.title} {it.text(run.results.ensemble.get(it.key))}" for it in shown]
    return (
        f"{run.name} scores {', '.join(scores)}, at {run.ledger.relative_flops:.2f}x the training "
        f"FLOPs of one dense model and in {run.ledger.seconds:,.0f} seconds."
    )
