import json
import shutil

import numpy as np
import pytest

from freetickets.evaluation import Predictions
from freetickets.report.run import read_runs
from freetickets.report.tables import make_rows

from ..report.fake_runs import FAKES, write_fake


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return [str(write_fake(root, fake, samples=300, rich=False)) for fake in FAKES]


@pytest.fixture
def answer_of(cli):
    return lambda *arguments: json.loads(cli("compare", *arguments, "--json").out)


def test_both_tables_are_printed(folders, cli):
    printed = cli("compare", *folders).out
    assert "cifar10, 300 test samples" in printed
    assert "differences from dense" in printed
    for name in ("dense-ensemble", "dst", "edst"):
        assert printed.count(f" {name} ") >= 2
    assert max(map(len, printed.splitlines())) <= 100


def test_json_has_stable_keys_and_differences_are_those_of_the_rows(folders, answer_of):
    answer = answer_of(*folders)
    assert list(answer) == ["reference", "rows", "differences"]
    assert answer["reference"] == "dense"
    assert list(answer["rows"][0]) == list(make_rows(read_runs(folders))[0].as_dict())
    for difference in answer["differences"]:
        assert list(difference) == ["run", "accuracy", "nll", "ece", "mcnemar"]
        assert list(difference["nll"]) == ["value", "low", "high", "p"]
        rows = {row["run"]: row for row in answer["rows"]}
        for key in ("accuracy", "nll", "ece"):
            gap = rows[difference["run"]][key] - rows["dense"][key]
            assert difference[key]["value"] == pytest.approx(gap, abs=1e-9)
            assert difference[key]["low"] <= difference[key]["high"]
            assert 0 < difference[key]["p"] <= 1


@pytest.mark.parametrize("wanted", ["name", "folder"])
def test_the_reference_can_be_chosen(folders, answer_of, wanted):
    reference = "edst" if wanted == "name" else f"{folders[3]}/"
    answer = answer_of(*folders, "--reference", reference)
    assert answer["reference"] == "edst"
    assert [each["run"] for each in answer["differences"]] == ["dense", "dense-ensemble", "dst"]


def test_equal_runs_do_not_differ(tmp_path, answer_of):
    folders = [write_fake(tmp_path / name, FAKES[3], samples=100, rich=False) for name in "ab"]
    (difference,) = answer_of(*folders)["differences"]
    assert difference["accuracy"] == {"value": 0, "low": 0, "high": 0, "p": 1}
    assert difference["mcnemar"] == 1


def test_without_predictions_or_another_run_there_are_no_differences(tmp_path, folders, cli):
    bare = [write_fake(tmp_path, fake, samples=50, rich=False) for fake in FAKES[:2]]
    (bare[0] / "predictions" / "cifar10.npz").unlink()
    assert "no differences to show: run evaluate" in cli("compare", *bare).out
    printed = cli("compare", folders[3]).out
    assert "edst (M=3" in printed
    assert "differences" not in printed


def other_labels(folder):
    path = folder / "predictions" / "cifar10.npz"
    saved = Predictions.load(path)
    Predictions(saved.outputs, np.roll(saved.labels, 1), saved.info).save(path)


def other_members(folder):
    path = folder / "predictions" / "cifar10.npz"
    saved = Predictions.load(path)
    Predictions(saved.outputs[:2], saved.labels, saved.info).save(path)


@pytest.mark.parametrize(
    ("classes", "change", "words"),
    [
        (10, other_labels, ("labels of dst differ", "report them separately")),
        (12, lambda folder: None, ("different classes: dense 10, dst 12",)),
        (10, other_members, ("holds other predictions", "evaluate {folder}")),
        (10, lambda folder: (folder / "metrics.json").unlink(), ("is not finished: wait for",)),
        (
            10,
            lambda folder: shutil.rmtree(folder) or folder.mkdir(),
            ("is not the folder of a run",),
        ),
    ],
)
def test_what_can_not_be_compared_is_one_line(
    tmp_path, folders, cli, one_line, classes, change, words
):
    folder = write_fake(tmp_path, FAKES[2], samples=300, classes=classes, rich=False)
    change(folder)
    line = one_line(cli("compare", folders[0], folder, "--json"))
    assert all(word.format(folder=folder) in line for word in words)
