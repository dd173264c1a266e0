"""The rule that decides: against SciPy, against brute force, and as often wrong as it says."""

import itertools
import sys

import numpy as np
import pytest
from scipy import stats

from freetickets.metrics.significance import LEVEL, POWER, Estimate, holm, pooled_variance


def over_seeds(mine, theirs):
    variance, freedom = pooled_variance([mine, theirs])
    gap = float(np.mean(mine) - np.mean(theirs))
    return Estimate(gap, 2 * variance / len(mine), freedom)


@pytest.mark.parametrize("seeds", [2, 3, 7])
def test_two_methods_are_compared_by_the_paired_t_test(seeds):
    rng = np.random.default_rng(seeds)
    mine, theirs = rng.normal(0.4, 1, seeds), rng.normal(0, 1, seeds)
    found, expected = over_seeds(mine, theirs), stats.ttest_rel(mine, theirs)
    assert found.p() == pytest.approx(expected.pvalue)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))


def test_margins_are_two_one_sided_tests():
    rng = np.random.default_rng(1)
    mine, theirs, margin = rng.normal(0, 1, 9), rng.normal(0, 1, 9), 0.8
    found, gaps = over_seeds(mine, theirs), mine - theirs
    low = stats.ttest_1samp(gaps, -margin, alternative="greater").pvalue
    high = stats.ttest_1samp(gaps, margin, alternative="less").pvalue
    loss = Estimate(-found.value, found.training, found.freedom)
    assert found.p_above(-margin) == pytest.approx(low)
    assert loss.p_above(-margin) == pytest.approx(high)


def test_what_a_seed_does_to_all_methods_is_no_noise():
    rng = np.random.default_rng(2)
    table = rng.normal(size=(5, 3))
    moved = table + 100 * rng.normal(size=(1, 3)) + rng.normal(size=(5, 1))
    assert pooled_variance(moved) == pytest.approx(pooled_variance(table))
    assert pooled_variance(table)[1] == 8


def test_two_sources_of_noise_have_the_degrees_of_welch():
    rng = np.random.default_rng(3)
    one, other = rng.normal(0, 1, 6), rng.normal(0, 4, 11)
    variances = one.var(ddof=1) / 6, other.var(ddof=1) / 11
    both = Estimate(one.mean() - other.mean(), variances[0], 5, variances[1], 11)
    expected = stats.ttest_ind(one, other, equal_var=False)
    assert both.degrees == pytest.approx(expected.df)
    assert both.p() == pytest.approx(expected.pvalue)


def test_an_exact_difference_has_no_doubt():
    assert Estimate(0.1).p() == Estimate(0.1).p_above(0.0) == 0.0
    assert Estimate(0.0).p() == Estimate(0.0).p_above(0.0) == 1.0
    assert Estimate(0.3).interval() == (0.3, 0.3)


def test_holm_is_the_closure_of_bonferroni():
    rng = np.random.default_rng(4)
    for count in (1, 2, 4, 5):
        ps = rng.uniform(0, 0.4, count).tolist()
        for place, found in enumerate(holm(ps)):
            # The largest over all groups of hypotheses that hold this one.
            groups = (
                group
                for size in range(1, count + 1)
                for group in itertools.combinations(range(count), size)
                if place in group
            )
            expected = max(min(1.0, len(group) * min(ps[at] for at in group)) for group in groups)
            assert found == pytest.approx(expected)


def test_the_difference_that_is_detectable_is_found_in_four_of_five_cases():
    error, freedom, tests = 0.3, 8, 4
    size = Estimate(0.0, error**2, freedom).detectable(tests)
    critical = stats.t.ppf(1 - LEVEL / (2 * tests), freedom)
    power = stats.nct.sf(critical, freedom, size / error)
    assert power == pytest.approx(POWER, abs=0.02)


def test_a_missing_extra_is_told_in_one_line(monkeypatch, refused):
    monkeypatch.setitem(sys.modules, "scipy", None)
    refused("pip install 'freetickets\\[report\\]'", Estimate(1.0, 1.0, 3).p)


def decided(effect, claims, of_image, of_answer, findings=4, methods=4, seeds=3, images=200):
    """The share of claims that are decided, of methods whose first one is better by an effect.

    Answers scatter by training as a whole (by 0.02), by image for a method, whoever trains it
    (`of_image`), and by each training's answer to each image (`of_answer`).
    """
    rng, count = np.random.default_rng(0), 0
    for _ in range(claims):
        ps = []
        for _ in range(findings):
            answers = of_answer * rng.normal(size=(methods, seeds, images))
            answers += of_image * rng.normal(size=(methods, 1, images))
            answers += 0.02 * rng.normal(size=(methods, seeds, 1)) + rng.normal(size=(1, seeds, 1))
            answers[0] += effect
            variance, freedom = pooled_variance(answers.mean(2))
            gaps = (answers[0] - answers[1]).mean(0)
            sampling = float(gaps.var(ddof=1)) / images
            ps.append(Estimate(gaps.mean(), 2 * variance / seeds, freedom, sampling, images).p())
        count += min(holm(ps)) <= LEVEL
    return count / claims


def test_of_claims_without_any_difference_at_most_five_in_a_hundred_are_decided():
    assert decided(0.0, 1500, of_image=0.1, of_answer=0.3) <= 0.05
    assert decided(0.2, 100, of_image=0.1, of_answer=0.3) > 0.95
    # Without what both sources count, the approximate degrees of freedom err by a little.
    assert decided(0.0, 1500, of_image=0.3, of_answer=0.0) <= 0.07
