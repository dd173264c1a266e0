import numpy as np
import pytest

from freetickets import metrics
from freetickets.report.comparison import analyse, class_names, differences
from freetickets.report.run import read_run

from .fake_runs import FAKES, write_fake


@pytest.fixture(scope="module")
def run(full_runs):
    return full_runs[3]


@pytest.fixture(scope="module")
def analysis(run):
    return analyse(run)


def test_classes_have_names_and_what_was_not_saved_is_not_analysed(full_runs, runs, run):
    assert analyse(runs[0]) is None
    alone = analyse(full_runs[0])
    assert alone.sizes is None
    assert list(alone.classes) == ["accuracy"]
    assert class_names(run, 10)[:2] == ["airplane", "automobile"]
    assert class_names(run, 3) == ["0", "1", "2"]
    assert class_names(runs[0], 2) == ["0", "1"]  # of a data set that is not known


def test_all_of_it_agrees_with_the_saved_scores_and_predictions(run, analysis):
    assert analysis.reliability.ece == pytest.approx(run.results.ensemble["ece"])
    assert analysis.risk.area == pytest.approx(run.results.more["aurc"])
    assert analysis.sizes.accuracy[-1] == run.results.ensemble["accuracy"]
    assert analysis.sizes.nll[-1] == pytest.approx(run.results.ensemble["nll"])
    assert analysis.sizes.member_accuracy[-1] == pytest.approx(run.results.member_mean["accuracy"])
    assert analysis.sizes.kl[-1] == pytest.approx(run.results.diversity.kl)
    for name, found in analysis.unfamiliar.items():
        assert found.auroc == pytest.approx(run.results.ood[name].scores["max_probability"].auroc)
    # The sizes are those of the first members.
    assert analysis.sizes.accuracy[0] == run.results.members[0]["accuracy"]
    assert analysis.sizes.nll[0] == pytest.approx(run.results.members[0]["nll"])
    assert np.isnan(analysis.sizes.kl[0])
    members = run.load_predictions().members()[:2]
    labels = run.load_predictions().labels
    assert analysis.sizes.accuracy[1] == metrics.accuracy(members, labels)
    assert analysis.sizes.kl[1] == pytest.approx(metrics.kl(members))
    # Class scores are those of the samples of a class.
    chosen = analysis.ensemble[0].argmax(-1)
    for label in range(10):
        of_class = analysis.labels == label
        assert analysis.classes["accuracy"][label] == (chosen == label)[of_class].mean()


def test_what_has_no_samples_or_predictions_is_left_out(tmp_path):
    run = read_run(write_fake(tmp_path, FAKES[2], samples=5, rich=False))
    accuracy = analyse(run).classes["accuracy"]
    assert np.isnan(accuracy).sum() >= 5
    folder = write_fake(tmp_path, FAKES[3], samples=30)
    (folder / "predictions" / "ood" / "svhn.npz").unlink()
    assert list(analyse(read_run(folder)).unfamiliar) == ["gaussian-noise"]


def test_differences_change_sign_with_their_sides_and_infinities_claim_none(full_runs, analysis):
    other = analyse(full_runs[0])
    there = differences(analysis.ensemble, other.ensemble, analysis.labels)
    back = differences(other.ensemble, analysis.ensemble, analysis.labels)
    assert there.mcnemar == back.mcnemar
    for name, found in there.scores.items():
        assert found.value == pytest.approx(-back.scores[name].value)
        assert found.low == pytest.approx(-back.scores[name].high)
        assert found.p == pytest.approx(back.scores[name].p)
    certain = np.log(np.array([[[1.0, 1e-300], [1e-300, 1.0]]]))
    certain[certain < -600] = -np.inf
    found = differences(certain, certain[:, ::-1], np.array([1, 1]))
    assert np.isnan(found.scores["nll"].p)
    assert found.scores["accuracy"].p == 1
