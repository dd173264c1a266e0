import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetickets.metrics import (
    CORRUPTION_SETS,
    accuracy,
    attack_scores,
    corruption_set,
    ece,
    nll,
    shift_scores,
    transfer_matrix,
)

from . import drawn


def draw(types, severities, seed=0, samples=40, spread=2.0):
    names = CORRUPTION_SETS["all19"][:types]
    return {
        name: [
            drawn.draw(2, samples, 5, spread, seed=100 * seed + 10 * place + severity)
            for severity in range(severities)
        ]
        for place, name in enumerate(names)
    }


def pooled(sets):
    logs, labels = zip(*(part for parts in sets.values() for part in parts), strict=True)
    return np.concatenate(logs, axis=1), np.concatenate(labels)


def test_each_set_has_its_scores_and_is_one_of_the_literature():
    sets = draw(3, 5)
    found = shift_scores(sets)
    assert found.types == tuple(sets)
    for score, values in ((accuracy, found.accuracy), (nll, found.nll), (ece, found.ece)):
        expected = [[score(*part) for part in parts] for parts in sets.values()]
        np.testing.assert_allclose(values, expected, atol=1e-12)
    means = found.mean()
    assert list(means) == ["accuracy", "nll", "ece", "ece_pooled"]
    assert means["ece"] == pytest.approx(found.ece.mean())
    sets = CORRUPTION_SETS
    assert [len(sets[name]) for name in ("all19", "common15", "ub")] == [19, 15, 17]
    assert sets["all19"][:15] == sets["common15"]
    assert len(set(sets["all19"])) == 19
    # Uncertainty Baselines: 15 types for CIFAR-10 and ImageNet, 17 for CIFAR-100.
    assert corruption_set("ub", 10) == corruption_set("ub", 1000) == sets["common15"]
    assert set(sets["all19"]) - set(corruption_set("ub", 100)) == {"snow", "motion_blur"}
    assert corruption_set("all19", 100) == sets["all19"]


@pytest.mark.parametrize("bins", [15, 7, "freetickets", "tf"])
def test_pooled_means_are_the_scores_of_all_predictions_together(bins):
    sets = draw(4, 3)
    found = shift_scores(sets, bins)
    for types in (None, list(sets)[1:3], list(sets)[3:]):
        whole = pooled(sets if types is None else {name: sets[name] for name in types})
        means = found.mean(types)
        assert means["ece_pooled"] == pytest.approx(ece(*whole, bins), abs=1e-12)
        # Sets of equal size: pooling makes no difference to means over samples.
        assert means["accuracy"] == pytest.approx(accuracy(*whole), abs=1e-12)
        assert means["nll"] == pytest.approx(nll(*whole), abs=1e-12)
    uneven = {"fog": draw(1, 1, samples=10)["gaussian_noise"], **draw(1, 1, samples=90)}
    assert shift_scores(uneven).mean()["ece_pooled"] == pytest.approx(ece(*pooled(uneven)))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.floats(0, 10))
def test_pooled_ece_is_at_most_the_mean_and_of_one_set_equal(seed, types, severities, spread):
    means = shift_scores(draw(types, severities, seed, 10, spread)).mean()
    assert means["ece_pooled"] <= means["ece"] + 1e-12
    if types * severities == 1:
        assert means["ece_pooled"] == pytest.approx(means["ece"])


LOGS, LABELS = drawn.draw(9, 50, 4, 2.0)
PARTS = list(LOGS.reshape(3, 3, 50, 4))
UNEVEN = {"fog": draw(1, 2)["gaussian_noise"], "snow": draw(1, 3)["gaussian_noise"]}


def test_what_can_not_be_scored_is_refused(refused):
    for score, arguments, message in (
        (shift_scores, ({},), "at least one corruption type"),
        (shift_scores, (UNEVEN,), "as many severities of each"),
        (shift_scores, ({"fog": []},), "at least one corruption type"),
        (shift_scores(draw(2, 2)).mean, (["shot"],), "unknown corruption type 'shot'"),
        (shift_scores(draw(2, 2)).mean, ([],), "at least one corruption type"),
        (corruption_set, ("all", 10), "did you mean 'all19'"),
        (attack_scores, ([], LABELS), "one array for each attacked member"),
        (transfer_matrix, ([PARTS[0], PARTS[1][:2]], LABELS), "same shape"),
        (attack_scores, (PARTS, LABELS[:3]), "50 predictions need 50 labels"),
    ):
        refused(message, score, *arguments)


def test_members_and_ensemble_are_scored_on_each_attack():
    found = attack_scores(PARTS, LABELS)
    expected = [[accuracy(member[None], LABELS) for member in part] for part in PARTS]
    np.testing.assert_allclose(found.transfer, expected)
    np.testing.assert_array_equal(transfer_matrix(PARTS, LABELS), found.transfer)
    ensembles = [accuracy(part, LABELS) for part in PARTS]
    assert found.ensemble.tolist() == ensembles
    assert (found.min, found.max) == (min(ensembles), max(ensembles))
    assert found.mean == pytest.approx(np.mean(ensembles))
    alone = attack_scores([PARTS[0][:1]], LABELS)
    assert alone.min == alone.mean == alone.max == alone.transfer.item()
