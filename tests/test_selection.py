import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax

from freetickets.metrics import ensemble_log_probs, nll
from freetickets.metrics.predictive import RULES
from freetickets.selection import select_members


def draw(members, samples, classes, spread=1.5, seed=0):
    """A pool whose members differ in skill."""
    rng = np.random.default_rng([seed, members, samples, classes])
    labels = rng.integers(0, classes, samples)
    skill = rng.uniform(0, 2, size=(members, 1, 1))
    logits = rng.normal(size=(members, samples, classes)) + skill * np.eye(classes)[labels]
    return log_softmax(spread * logits, axis=-1), labels


def loss(logs, labels, members, combine):
    return nll(ensemble_log_probs(logs[members], combine)[None], labels)


def naive(logs, labels, size, combine, replacement):
    """The definition: every candidate's whole ensemble anew."""
    chosen: list[int] = []
    while len(chosen) < (size or len(logs)):
        candidates = [i for i in range(len(logs)) if replacement or i not in chosen]
        losses = {i: loss(logs, labels, [*chosen, i], combine) for i in candidates}
        best = min(candidates, key=lambda i: (losses[i], i))
        if size is None and chosen and losses[best] >= loss(logs, labels, chosen, combine):
            break
        chosen.append(best)
    return chosen


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 15), st.integers(2, 6),
    st.floats(0.1, 20), st.sampled_from(RULES), st.booleans(), st.data(),
)  # fmt: skip
def test_the_choice_is_that_of_the_definition(
    seed, members, samples, classes, spread, combine, replacement, data
):
    logs, labels = draw(members, samples, classes, spread, seed)
    size = data.draw(st.none() | st.integers(1, 9 if replacement else members))
    found = select_members(logs, labels, size, combine=combine, replacement=replacement)
    expected = naive(logs, labels, size, combine, replacement)
    assert size is None or len(found) == size
    # Where rounding decides between equals the paths may part, but not their losses.
    same = sum(itertools.takewhile(bool, map(int.__eq__, found, expected)))
    if found != expected:
        ours, theirs = (loss(logs, labels, c[: same + 1], combine) for c in (found, expected))
        assert ours == pytest.approx(theirs, rel=1e-9, abs=2e-9)


def test_of_equal_members_the_first_is_chosen_and_the_smallest_probability_counts():
    logs, labels = draw(1, 20, 3)
    copies = np.repeat(logs, 4, axis=0)
    assert select_members(copies, labels, 3) == [0, 1, 2]
    assert select_members(copies, labels, 3, replacement=True) == [0, 0, 0]
    for combine in RULES:
        assert select_members(copies, labels, combine=combine) == [0]
    pool = np.array([[[-2000.0, 0.0]], [[-1000.0, 0.0]], [[-3000.0, 0.0]]])
    assert select_members(pool, [0], 3) == [1, 0, 2]
    often, seldom = np.array([[-np.inf, 0.0]] * 3), np.array([[-np.inf, 0.0]] * 3)
    seldom[1:] = np.log([0.5, 0.5])
    for combine in RULES:
        assert select_members([often, seldom], [0, 0, 0], combine=combine) == [1]


def test_wrong_names_and_numbers_say_what_to_do(refused):
    logs, labels = draw(3, 5, 3)
    for wrong, message in (
        ({"size": 0}, "at least 1 member, not 0"),
        ({"size": 4}, "can't choose 4 members from a pool of 3"),
        ({"combine": "logit"}, "did you mean 'logits'"),
        ({"labels": labels[:-1]}, "predictions need 5 labels"),
    ):
        refused(message, select_members, logs, **{"labels": labels, "size": 2, **wrong})
