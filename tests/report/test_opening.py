"""The sentence that a page opens with says what the tables below it say."""

from dataclasses import replace

import pytest

from freetickets.metrics.score import MAIN_SCORES
from freetickets.report.comparison import Comparison
from freetickets.report.opening import opening


@pytest.fixture(scope="module")
def compared(full_runs):
    return Comparison.of(full_runs)


def test_it_names_each_score_on_the_side_where_its_interval_lies(compared):
    text = opening(compared)
    best = next(name for name in compared.differences if f"{name} is " in text)
    for score in MAIN_SCORES:
        gap = compared.differences[best].scores[score.key]
        scale, digits = (100, 2) if score.is_share else (1, 4)
        shown = f"{scale * gap.value:+.{digits}f}"
        at = text.index(f"{score.title} ({shown}")
        side = max(("better", "worse", "no different"), key=lambda word: text.rfind(word, 0, at))
        sure = gap.low > 0 or gap.high < 0
        good = (gap.value > 0) == score.higher_is_better
        assert side == (("better" if good else "worse") if sure else "no different")


def test_it_tells_the_share_of_flops_and_of_seconds(compared):
    text, runs = opening(compared), {run.name: run for run in compared.runs}
    best = next(name for name in compared.differences if f"{name} is " in text)
    one, other = runs[best].ledger, compared.reference.ledger
    assert f"it took {one.flops / other.flops:.2f}x the training FLOPs" in text
    assert f"and {one.seconds / other.seconds:.2f}x the seconds." in text
    assert opening(replace(compared, analyses={})) == ""


def test_a_run_alone_tells_its_scores_and_cost(full_runs):
    text = opening(Comparison.of(full_runs[:1]))
    run = full_runs[0]
    assert f"accuracy {run.results.ensemble['accuracy']:.2%}" in text
    assert f"{run.ledger.relative_flops:.2f}x the training FLOPs" in text
