from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score

from freetickets.errors import FreeTicketsError
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

Array = Any
Sets = dict[str, list[tuple[Array, Array]]]


def draw(types, severities, seed=0, samples=40, spread=2.0):
    rng = np.random.default_rng(seed)

    def one():
        logits = spread * rng.normal(size=(2, samples, 5))
        return log_softmax(logits, axis=-1), rng.integers(0, 5, samples)

    names = CORRUPTION_SETS["all19"][:types]
    return {name: [one() for _ in range(severities)] for name in names}


def pooled(sets):
    parts = [part for parts in sets.values() for part in parts]
    logs, labels = zip(*parts, strict=True)
    return np.concatenate(logs, axis=1), np.concatenate(labels)


def test_each_set_has_its_scores():
    sets = draw(3, 5)
    found = shift_scores(sets)
    assert found.types == tuple(sets)
    for score, values in ((accuracy, found.accuracy), (nll, found.nll), (ece, found.ece)):
        expected = [[score(*part) for part in parts] for parts in sets.values()]
        np.testing.assert_allclose(values, expected, atol=1e-12)
    means = found.mean()
    assert list(means) == ["accuracy", "nll", "ece", "ece_pooled"]
    assert means["ece"] == pytest.approx(found.ece.mean())


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


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.floats(0, 10))
def test_pooled_ece_is_at_most_the_mean_ece(seed, types, severities, spread):
    means = shift_scores(draw(types, severities, seed, 10, spread)).mean()
    assert means["ece_pooled"] <= means["ece"] + 1e-12


def test_one_set_has_one_calibration_error():
    means = shift_scores(draw(1, 1)).mean()
    assert means["ece_pooled"] == pytest.approx(means["ece"])


def test_sets_of_different_size_are_pooled_by_their_samples():
    sets = {
        "fog": draw(1, 1, 1, 10)["gaussian_noise"],
        "frost": draw(1, 1, 2, 90)["gaussian_noise"],
    }
    assert shift_scores(sets).mean()["ece_pooled"] == pytest.approx(ece(*pooled(sets)))


def test_the_sets_of_types_are_those_of_the_literature():
    sets = CORRUPTION_SETS
    assert [len(sets[name]) for name in ("all19", "common15", "ub")] == [19, 15, 17]
    assert sets["all19"][:15] == sets["common15"]
    assert len(set(sets["all19"])) == 19
    # Uncertainty Baselines: 15 types for CIFAR-10 and ImageNet, 17 for CIFAR-100.
    assert corruption_set("ub", 10) == corruption_set("ub", 1000) == sets["common15"]
    assert set(sets["all19"]) - set(corruption_set("ub", 100)) == {"snow", "motion_blur"}
    assert corruption_set("all19", 100) == sets["all19"]


def test_what_can_not_be_scored_is_refused():
    with pytest.raises(FreeTicketsError, match="at least one corruption type"):
        shift_scores({})
    with pytest.raises(FreeTicketsError, match="as many severities of each"):
        shift_scores({"fog": draw(1, 2)["gaussian_noise"], "snow": draw(1, 3)["gaussian_noise"]})
    with pytest.raises(FreeTicketsError, match="at least one corruption type"):
        shift_scores({"fog": []})
    found = shift_scores(draw(2, 2))
    with pytest.raises(FreeTicketsError, match="unknown corruption type 'shot'"):
        found.mean(["shot"])
    with pytest.raises(FreeTicketsError, match="at least one corruption type"):
        found.mean([])
    with pytest.raises(FreeTicketsError, match="did you mean 'all19'"):
        corruption_set("all", 10)


RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 50)
PARTS = list(log_softmax(2 * RNG.normal(size=(3, 3, 50, 4)), axis=-1))


def test_the_matrix_is_the_accuracy_of_each_member_on_each_attack():
    expected = [[accuracy_score(LABELS, member.argmax(-1)) for member in part] for part in PARTS]
    np.testing.assert_allclose(transfer_matrix(PARTS, LABELS), expected)


def test_the_ensemble_is_scored_on_each_attack():
    found = attack_scores(PARTS, LABELS)
    expected = [accuracy(part, LABELS) for part in PARTS]
    assert found.ensemble.tolist() == expected
    assert (found.min, found.max) == (min(expected), max(expected))
    assert found.mean == pytest.approx(np.mean(expected))
    np.testing.assert_array_equal(found.transfer, transfer_matrix(PARTS, LABELS))
    assert found.transfer.diagonal().tolist() == [
        accuracy(part[member][None], LABELS) for member, part in enumerate(PARTS)
    ]


def test_one_member_attacked_by_itself_has_three_equal_numbers():
    found = attack_scores([PARTS[0][:1]], LABELS)
    assert found.min == found.mean == found.max == found.transfer.item()


def test_attacks_that_do_not_fit_are_refused():
    with pytest.raises(FreeTicketsError, match="one array for each attacked member"):
        attack_scores([], LABELS)
    with pytest.raises(FreeTicketsError, match="same shape"):
        transfer_matrix([PARTS[0], PARTS[1][:2]], LABELS)
    with pytest.raises(FreeTicketsError, match="50 predictions need 50 labels"):
        attack_scores(PARTS, LABELS[:3])
