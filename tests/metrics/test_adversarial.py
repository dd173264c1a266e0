from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.metrics import accuracy_score

from freetickets.errors import FreeTicketsError
from freetickets.metrics import accuracy, attack_scores, transfer_matrix

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 4, 50)
PARTS = list(log_softmax(2 * RNG.normal(size=(3, 3, 50, 4)), axis=-1))


def test_the_matrix_is_the_accuracy_of_each_member_on_each_attack() -> None:
    expected = [[accuracy_score(LABELS, member.argmax(-1)) for member in part] for part in PARTS]
    np.testing.assert_allclose(transfer_matrix(PARTS, LABELS), expected)


def test_the_ensemble_is_scored_on_each_attack() -> None:
    found = attack_scores(PARTS, LABELS)
    expected = [accuracy(part, LABELS) for part in PARTS]
    assert found.ensemble.tolist() == expected
    assert (found.min, found.max) == (min(expected), max(expected))
    assert found.mean == pytest.approx(np.mean(expected))
    np.testing.assert_array_equal(found.transfer, transfer_matrix(PARTS, LABELS))
    assert found.transfer.diagonal().tolist() == [
        accuracy(part[member][None], LABELS) for member, part in enumerate(PARTS)
    ]


def test_one_member_attacked_by_itself_has_three_equal_numbers() -> None:
    found = attack_scores([PARTS[0][:1]], LABELS)
    assert found.min == found.mean == found.max == found.transfer.item()


def test_attacks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(FreeTicketsError, match="one array for each attacked member"):
        attack_scores([], LABELS)
    with pytest.raises(FreeTicketsError, match="same shape"):
        transfer_matrix([PARTS[0], PARTS[1][:2]], LABELS)
    with pytest.raises(FreeTicketsError, match="50 predictions need 50 labels"):
        attack_scores(PARTS, LABELS[:3])
