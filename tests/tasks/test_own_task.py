"""The examples of what one can add without touching the package: each in one file, outside."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, root_mean_squared_error
from torch.utils.data import TensorDataset

import freetickets as ft
from freetickets.methods import METHODS
from freetickets.tasks import TASKS

EXTEND = Path(__file__).parents[2] / "examples" / "extend"
TASK = "--task regression:Regression"


def forget(module):
    """As if nobody had imported a module yet."""
    sys.modules.pop(module, None)
    TASKS._known = {name: kind for name, kind in TASKS.items() if not name.startswith(module)}


@pytest.fixture
def regression(tmp_path, monkeypatch):
    """The module, in a current directory of its own."""
    shutil.copy(EXTEND / "regression.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "regression", raising=False)
    import regression

    return regression


@pytest.fixture
def waves(regression):
    """Its data as a file: names, labels and all."""
    (x, y), (x_test, y_test) = regression.waves(300, 0), regression.waves(100, 1)
    np.savez("waves.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test)
    return Path("waves.npz")


def test_the_example_learns_from_python(regression, capsys):
    regression.main()
    guess, _, ensemble, variance = capsys.readouterr().out.splitlines()
    assert float(ensemble.split()[-1]) < 0.5 * float(guess.split()[-1])
    near, far = map(float, variance.split()[-2:])
    assert far > 5 * near


@pytest.mark.usefixtures("waves")
def test_a_task_of_ones_own_goes_all_the_way_on_the_command_line(cli, regression):
    flags = f"{TASK} --dataset waves.npz --model mlp-16 --epochs 6 --output run --quiet"
    trained = cli("train", "edst", *flags.split(), "--json")
    assert (trained.code, trained.err) == (0, "")
    scores = json.loads(trained.out)["scores"]

    # Other people's numbers, of what another process says.
    code = (
        "import sys, numpy as np, freetickets as ft, regression\n"
        "ensemble = ft.load('run', task=regression.Regression())\n"
        "x = np.load('waves.npz')['x_test']\n"
        "np.savez('said.npz', p=ensemble.predict(x), m=ensemble.member_predictions(x),"
        " v=ensemble.uncertainty(x).variance)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    said, (_, y) = np.load("said.npz"), regression.waves(100, 1)
    assert said["m"].shape == (3, 100, 1)
    np.testing.assert_allclose(said["p"], said["m"].mean(0)[:, 0], atol=1e-5)
    np.testing.assert_allclose(said["v"], said["m"].var(0), atol=1e-5)
    measures = {"rmse": root_mean_squared_error, "mae": mean_absolute_error}
    expected = {name: measure(y, said["p"]) for name, measure in measures.items()}
    assert scores["ensemble"] == pytest.approx(expected, abs=1e-4)
    assert list(scores["members"][0]) == ["rmse", "mae"]

    with Path("run/log.csv").open() as file:
        names = list(csv.DictReader(file).fieldnames or ())
    assert names[5:9] == ["train_loss", "train_rmse", "validation_loss", "validation_rmse"]
    assert "validation_rmse" in ft.load("run", task="regression:Regression").tickets[0].info

    evaluated = cli("evaluate", "run", *TASK.split(), "--all", "--quiet")
    assert evaluated.code == 0
    assert "RMSE" in evaluated.out
    assert cli("evaluate", "run", *TASK.split(), "--saved", "--json").code == 0
    np.save("waves.npy", np.load("waves.npz")["x_test"][:, :, None, None])
    predicted = cli("predict", "run", "waves.npy", *TASK.split())
    names, first, *_ = csv.reader(predicted.out.splitlines())
    assert names == ["input", "prediction", "variance"]
    assert float(first[1]) == pytest.approx(said["p"][0], abs=1e-4)

    reported = cli("report", "run", "-o", "page.html")
    assert (reported.code, reported.err) == (0, "")
    page = Path("page.html").read_text()
    assert "regression:Regression, has no classes: confidence" in page
    for title in ("RMSE ↓", "MAE ↓", "Members and ensemble", "Training of run"):
        assert title in page
    for title in ("Reliability", "NLL", "accuracy"):
        assert title not in page


@pytest.mark.usefixtures("waves")
def test_what_needs_classes_is_refused_in_one_line(refused, cli, regression):
    flags = f"{TASK} --dataset waves.npz --model mlp-8 --epochs 1 --output run --quiet"
    assert cli("train", "dense", *flags.split()).code == 0
    for more, message in (
        (["--ood", "svhn"], "scored by classes, and regression:Regression has none"),
        (["--temperature", "ensemble"], "a temperature is fitted to classes"),
        (["--select", "1"], "members are chosen by classes"),
    ):
        assert message in cli("evaluate", "run", *TASK.split(), *more).err
    forget("regression")
    assert "the task 'regression:Regression' is not known here" in cli("evaluate", "run").err
    named = cli("train", "dense", *TASK.split(), "--dataset", "fashion-mini")
    assert "fashion-mini has classes" in named.err
    ensemble = ft.load("run", task=regression.Regression())
    refused("probabilities are those of classes", ensemble.predict_proba, torch.zeros(1, 4))


@pytest.mark.parametrize("name", ["edst", "mc-dropout", "mimo", "batch-ensemble", "treenet"])
def test_every_kind_of_network_learns_targets_of_several_numbers(regression, name):
    x, y = regression.waves(128, 0)
    both = np.stack([y, -y], axis=1)
    ensemble = METHODS[name]().fit(
        "mlp-16-16", (x, both), task=regression.Regression(), epochs=4, batch_size=32, quiet=True
    )
    assert ensemble.member_predictions(x).shape == (len(ensemble), 128, 2)
    assert regression.rmse(ensemble.member_predictions(x), both) < 1.5 * both.std()


def test_the_best_ticket_has_the_lowest_error_and_datasets_are_as_arrays(regression, tmp_path):
    ensemble = ft.EDST(tickets=2).fit(
        "mlp-8", regression.waves(200, 0), task=regression.Regression(), epochs=8, lr=0.1,
        preset="paper", validation=0.2, output=tmp_path / "run", quiet=True,
    )  # fmt: skip
    with (tmp_path / "run" / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    for ticket in ensemble.tickets:
        phase = [row for row in rows if row["phase"] == ticket.info["phase"]]
        best = min(float(row["validation_rmse"]) for row in phase)
        assert ticket.info["validation_rmse"] == best
    x, y = regression.waves(96, 0)
    options = {"task": regression.Regression(), "epochs": 2, "batch_size": 32, "quiet": True}
    one = ft.Dense().fit("mlp-8", (x, y), **options)
    points = TensorDataset(torch.as_tensor(x), torch.as_tensor(y))
    other = ft.Dense().fit("mlp-8", points, **options)
    assert torch.equal(one.tickets[0].state["fc1.weight"], other.tickets[0].state["fc1.weight"])


RANKED = """
from dataclasses import dataclass
import numpy as np
from freetickets.tasks import Classification, Score

def top2(members, labels):
    best = members.mean(0).argsort(-1)[:, -2:]
    return float((best == labels[:, None]).any(-1).mean())

@dataclass(frozen=True)
class Ranked(Classification):
    @property
    def scores(self):
        return (Score("top2", "top-2", ".1%", True, top2), *super().scores)
"""


def test_a_score_of_ones_own_stands_in_every_table(cli, images_npz, tmp_path, monkeypatch):
    (tmp_path / "ranked.py").write_text(RANKED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ranked", raising=False)
    flags = f"--task ranked:Ranked --dataset {images_npz} --model mlp-8 --epochs 2 --output run"
    trained = cli("train", "dense", *flags.split(), "--quiet")
    assert trained.code == 0, trained.err
    assert trained.out.index("top-2") < trained.out.index("accuracy")
    forget("ranked")
    assert "by --import ranked on the command line" in cli("evaluate", "run").err
    more = cli("evaluate", "run", "--task", "ranked:Ranked", "--corruptions", "fog", "--quiet")
    assert more.code == 0, more.err
    reported = cli("report", "run", "-o", "page.html")
    assert (reported.code, reported.err) == (0, "")
    page = Path("page.html").read_text()
    assert page.index("top-2 ↑") < page.index("Acc ↑")
    assert "Reliability" in page
