import json

import numpy as np
import pytest

from freetickets.cli import main
from freetickets.evaluation import Predictions
from freetickets.report import make_rows, read_runs

from ..report.fake_runs import FAKES, write_fake


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [str(write_fake(root, fake, samples=300, rich=False)) for fake in FAKES]


def answer_of(capsys, *arguments):
    assert main(["compare", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_both_tables_are_printed(folders, capsys):
    assert main(["compare", *folders]) == 0
    printed = capsys.readouterr().out
    assert "cifar10, 300 test samples" in printed
    assert "differences from dense" in printed
    for name in ("dense-ensemble", "dst", "edst"):
        assert printed.count(f" {name} ") >= 2
    assert max(map(len, printed.splitlines())) <= 100


def test_json_has_stable_keys(folders, capsys):
    answer = answer_of(capsys, *folders)
    assert list(answer) == ["reference", "rows", "differences"]
    assert answer["reference"] == "dense"
    assert list(answer["rows"][0]) == list(make_rows(read_runs(folders))[0].as_dict())
    for difference in answer["differences"]:
        assert list(difference) == ["run", "accuracy", "nll", "ece", "mcnemar"]
        assert list(difference["nll"]) == ["value", "low", "high", "p"]


def test_a_difference_is_that_of_the_rows(folders, capsys):
    answer = answer_of(capsys, *folders)
    rows = {row["run"]: row for row in answer["rows"]}
    for difference in answer["differences"]:
        for key in ("accuracy", "nll", "ece"):
            gap = rows[difference["run"]][key] - rows["dense"][key]
            assert difference[key]["value"] == pytest.approx(gap, abs=1e-9)
            assert difference[key]["low"] <= difference[key]["high"]
            assert 0 < difference[key]["p"] <= 1


@pytest.mark.parametrize("wanted", ["name", "folder"])
def test_the_reference_can_be_chosen(folders, capsys, wanted):
    reference = "edst" if wanted == "name" else f"{folders[3]}/"
    answer = answer_of(capsys, *folders, "--reference", reference)
    assert answer["reference"] == "edst"
    assert [each["run"] for each in answer["differences"]] == ["dense", "dense-ensemble", "dst"]


def test_equal_runs_do_not_differ(tmp_path, capsys):
    folders = [str(write_fake(tmp_path / name, FAKES[3], samples=100, rich=False)) for name in "ab"]
    (difference,) = answer_of(capsys, *folders)["differences"]
    assert difference["accuracy"] == {"value": 0, "low": 0, "high": 0, "p": 1}
    assert difference["mcnemar"] == 1


def test_without_predictions_there_are_no_differences(tmp_path, capsys):
    folders = [write_fake(tmp_path, fake, samples=50, rich=False) for fake in FAKES[:2]]
    (folders[0] / "predictions" / "cifar10.npz").unlink()
    assert main(["compare", *map(str, folders)]) == 0
    assert "no differences to show: run evaluate" in capsys.readouterr().out


def test_one_run_is_compared_with_nothing(folders, capsys):
    assert main(["compare", folders[3]]) == 0
    printed = capsys.readouterr().out
    assert "edst (M=3" in printed
    assert "differences" not in printed


def fails_with(capsys, arguments, *words):
    assert main(["compare", *map(str, arguments)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for word in words:
        assert word in message


def test_other_labels_of_equal_names_are_refused(tmp_path, folders, capsys):
    other = write_fake(tmp_path, FAKES[2], samples=300, rich=False)
    path = other / "predictions" / "cifar10.npz"
    saved = Predictions.load(path)
    Predictions(saved.outputs, np.roll(saved.labels, 1), saved.info).save(path)
    fails_with(capsys, [folders[0], other], "labels of dst differ", "report them separately")


def test_other_classes_are_refused(tmp_path, folders, capsys):
    other = write_fake(tmp_path, FAKES[2], samples=300, classes=12, rich=False)
    fails_with(capsys, [folders[0], other], "different classes: dense 10, dst 12")


def test_predictions_of_another_evaluation_are_refused(tmp_path, capsys):
    folder = write_fake(tmp_path, FAKES[2], samples=60, rich=False)
    path = folder / "predictions" / "cifar10.npz"
    saved = Predictions.load(path)
    Predictions(saved.outputs[:2], saved.labels, saved.info).save(path)
    fails_with(capsys, [folder], "holds other predictions", f"evaluate {folder}")


def test_a_folder_that_is_no_run_is_refused(tmp_path, folders, capsys):
    fails_with(capsys, [folders[0], tmp_path], "is not the folder of a run")


def test_a_run_that_still_trains_is_refused(tmp_path, folders, capsys):
    folder = write_fake(tmp_path, FAKES[1], samples=20, rich=False)
    (folder / "metrics.json").unlink()
    fails_with(capsys, [folders[0], folder], "is not finished: wait for its training")
