import json
from dataclasses import replace

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


def test_both_tables_are_printed_and_json_has_stable_keys(folders, cli):
    printed = cli("compare", *folders).out
    assert "cifar10, 300 test samples" in printed
    assert "differences from dense" in printed
    for name in ("dense-ensemble", "dst", "edst"):
        assert printed.count(f" {name} ") >= 2
    assert max(map(len, printed.splitlines())) <= 100
    answer = json.loads(cli("compare", *folders, "--json").out)
    assert list(answer) == ["reference", "rows", "differences"]
    assert answer["reference"] == "dense"
    assert list(answer["rows"][0]) == list(make_rows(read_runs(folders))[0].as_dict())
    rows = {row["run"]: row for row in answer["rows"]}
    for difference in answer["differences"]:
        assert list(difference) == ["run", "accuracy", "nll", "ece", "mcnemar"]
        for key in ("accuracy", "nll", "ece"):
            found = difference[key]
            assert list(found) == ["value", "low", "high", "p"]
            gap = rows[difference["run"]][key] - rows["dense"][key]
            assert found["value"] == pytest.approx(gap, abs=1e-9)
            assert found["low"] <= found["high"]
            assert 0 < found["p"] <= 1
    for reference in ("edst", f"{folders[3]}/"):
        answer = json.loads(cli("compare", *folders, "--reference", reference, "--json").out)
        assert answer["reference"] == "edst"
        runs = [each["run"] for each in answer["differences"]]
        assert runs == ["dense", "dense-ensemble", "dst"]


def test_without_predictions_of_the_same_there_are_no_differences(tmp_path, folders, cli, one_line):
    bare = [write_fake(tmp_path, fake, samples=50, rich=False) for fake in FAKES[:2]]
    (bare[0] / "predictions" / "cifar10.npz").unlink()
    assert "no differences to show: run evaluate" in cli("compare", *bare).out
    printed = cli("compare", folders[3]).out
    assert "edst (M=3" in printed
    assert "differences" not in printed
    for classes, words in ((10, "labels of dst differ"), (12, "different classes: dense 10, dst")):
        folder = write_fake(tmp_path / str(classes), FAKES[2], 300, classes=classes, rich=False)
        path = folder / "predictions" / "cifar10.npz"
        saved = Predictions.load(path)
        replace(saved, labels=np.roll(saved.labels, 1)).save(path)
        assert words in one_line(cli("compare", folders[0], folder, "--json"))
