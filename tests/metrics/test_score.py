import numpy as np
import pytest

from freetickets.metrics import bootstrap
from freetickets.metrics.score import (
    COSTS,
    KINDS,
    MAIN_SCORES,
    MORE_SCORES,
    Score,
    column_of,
    columns_of_kind,
    p_text,
)

from .drawn import draw

LOGS, LABELS = draw(3, 50, 4, 2.0)


def test_how_a_column_is_shown_follows_from_its_score():
    for key, title, text, sign in (
        ("accuracy", "Acc", "50.00%", 1),
        ("member_ece", "member ECE", "0.5000", -1),
        ("c_accuracy", "cAcc", "50.00%", 1),
        ("c_ece_pooled", "cECE pooled", "0.5000", -1),
        ("a_ece", "aECE", "0.5000", -1),
        ("diversity.kl", "KL", "0.5000", 1),
        ("diversity.disagreement_by_class.maple_tree", "maple tree", "0.5000", 1),
        ("ood.svhn.auroc", "svhn AUROC", "0.5000", 1),
        ("ood.svhn.fpr95", "svhn FPR95", "0.5000", -1),
        ("attacks.fgsm.min", "FGSM min", "50.00%", 1),
        ("train_flops", "training FLOPs", "0.500", -1),
        ("seconds", "seconds", "0", -1),
        ("correlation.pearson", "Pearson", "0.5000", 1),
    ):
        column = column_of(key)
        assert (column.key, column.title, column.text(0.5), column.sign) == (key, title, text, sign)
        assert column.is_share == text.endswith("%")
        assert column.better([1, 2]) == (2 if sign == 1 else 1)
        assert column.arrow == ("↑" if sign == 1 else "↓")
        assert [column.text(value) for value in (None, np.nan, np.inf)] == ["-"] * 3


@pytest.mark.parametrize(
    "key", ["", "acc", "c_", "c_brier", "ood.svhn", "ood.svhn.nll", "attacks.cw.min", "d.kl", "x.y"]
)
def test_what_is_no_column_is_none(key):
    assert column_of(key) is None


def test_a_new_score_has_a_column_of_every_kind():
    new = Score("spread", "spread", ".1f", True, short="Sp")
    found = {kind: columns_of_kind(kind, (*MAIN_SCORES, new))[3] for kind in KINDS}
    told = {kind: (column.key, column.title) for kind, column in found.items()}
    assert told == {
        "member": ("member_spread", "member Sp"),
        "c": ("c_spread", "cSp"),
        "a": ("a_spread", "aSp"),
    }
    assert all(column.form == ".1f" and column.higher_is_better for column in found.values())
    every = [*MAIN_SCORES, *(column for kind in KINDS for column in columns_of_kind(kind)), *COSTS]
    assert all(column_of(each.key) for each in every)


@pytest.mark.parametrize("score", [*MAIN_SCORES, *MORE_SCORES], ids=lambda score: score.key)
def test_samples_and_draws_make_up_the_score(score):
    expected = score.function(LOGS, LABELS)
    if score.samples is not None:
        assert score.samples(LOGS, LABELS).mean() == pytest.approx(expected, abs=1e-12)
    drawn = np.random.default_rng(0).integers(0, 50, 50)
    found = score.of_drawn(LOGS, LABELS)
    assert found(np.arange(50)) == pytest.approx(expected, abs=1e-12)
    assert found(drawn) == pytest.approx(score.function(LOGS[:, drawn], LABELS[drawn]), abs=1e-12)
    by_entry, by_function = (bootstrap(each, LOGS, LABELS, 20) for each in (score, score.function))
    assert by_entry == by_function


def test_p_values_are_told_and_scores_from_files_can_not_be_computed(refused):
    assert [p_text(p) for p in (0.0004, 0.001, 0.0312, np.nan)] == ["<0.001", "0.001", "0.031", "–"]
    refused("rmse has no function to compute it with", Score("rmse", "RMSE").of_drawn, LOGS, LABELS)
