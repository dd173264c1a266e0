import sys

import numpy as np
import pytest

from freetickets.bench import metrics
from freetickets.bench.timing import Ratio


@pytest.mark.parametrize(("name", "cases"), [("scores", 15), ("ood", 3)])
def test_each_metric_is_set_against_a_peer_and_all_against_all(tiny, name, cases):
    *rows, whole = getattr(metrics, name)(tiny)
    assert len(rows) == cases
    assert all(isinstance(row, Ratio) and row.value > 0 for row in rows)
    assert list(whole.seconds) == ["ours", "the others"]
    for side, place in (("ours", 0), ("the others", 1)):
        parts = sum(list(row.seconds.values())[place] for row in rows)
        assert whole.seconds[side] == pytest.approx(parts)


def test_a_peer_is_left_out_without_its_package_and_refused_if_wrong(refused, tiny, monkeypatch):
    wrong = ("accuracy", lambda *_: 0.5, lambda *_: 0.50001, "nobody")
    monkeypatch.setattr(metrics, "_CASES", (wrong,))
    refused("accuracy is not what it is by nobody", list, metrics.scores(tiny))
    loaded = [name for name in sys.modules if name.partition(".")[0] == "sklearn"]
    for package in {"sklearn", *loaded}:  # whether another test has loaded it or not
        monkeypatch.setitem(sys.modules, package, None)
    lines = list(metrics.ood(tiny))
    assert [line.partition(" is left out")[0] for line in lines] == ["auroc", "aupr", "fpr95"]
    assert all("it needs the package sklearn" in line for line in lines)


def test_all_metrics_of_a_saved_file_are_named_with_their_seconds_of_what_is_drawn(tiny):
    *lines, row = metrics.saved(tiny)
    names = [line.partition("ms  ")[2] for line in lines]
    for name in ("reading the file", "accuracy", "classwise_ece", "kl_matrix", "risk_coverage"):
        assert name in names
    assert row.bar == 1.0
    assert row.seconds["allowed"] == 2.0
    assert row.value == pytest.approx(row.seconds["all"] / 2)
    logs, labels = metrics.draw(tiny)
    np.testing.assert_allclose(np.exp(logs).sum(-1), 1)
    assert logs.shape == (3, 40, 5)
    assert labels.shape == (40,)
