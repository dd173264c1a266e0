"""The examples that the README names really run."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import freetickets as ft
from freetickets.methods import RECIPES

from .tools.loading import load_script


def test_edst_vs_dense_prints_a_row_a_seed_and_the_differences(tmp_path, monkeypatch, capsys):
    short = dataclasses.replace(
        RECIPES["small"], dense_epochs=1, dense_decays=(), explore_epochs=1, refine=((1, 0.1),)
    )
    monkeypatch.setitem(RECIPES, "small", short)
    flags = ["--seeds", "3", "4", "--tickets", "1", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["edst_vs_dense.py", *flags])
    load_script("examples/edst_vs_dense.py").main()
    lines = capsys.readouterr().out.splitlines()
    assert "2,000 images" in lines[0]
    assert [line.split()[1] for line in lines[2:5]] == ["3", "4", "mean"]
    assert lines[5].startswith("accuracy, EDST ensemble - dense:")
    assert sorted(folder.name for folder in tmp_path.iterdir()) == [
        "dense-3", "dense-4", "edst1-3", "edst1-4",
    ]  # fmt: skip


def test_unseen_images_leave_out_the_first_200_of_each_class(monkeypatch):
    counts = torch.bincount(ft.data.load("fashion-mini", "test").labels)
    assert counts.tolist() == [200] * 10  # which are these
    labels = torch.arange(10).repeat(203)
    numbers = torch.arange(len(labels), dtype=torch.float32)[:, None]
    monkeypatch.setattr(ft.data, "load", lambda *_: ft.data.Split(numbers, labels), raising=False)
    unseen = load_script("examples/edst_vs_dense.py").unseen_images(None)
    assert sorted(unseen.inputs.flatten().tolist()) == list(range(2000, 2030))


@pytest.mark.filterwarnings("ignore")  # theirs, about our small machine and data
@pytest.mark.parametrize("name", ["lightning_callback", "hugging_face_callback"])
def test_a_callback_trains_and_goes_on_where_it_ended(name, tmp_path, monkeypatch, capsys):
    module = load_script(f"examples/{name}.py")
    for epochs in (1, 2):
        arguments = [name, "--epochs", str(epochs), "--samples", "320", "--output", str(tmp_path)]
        monkeypatch.setattr("sys.argv", arguments)
        module.main()
        assert f"{5 * epochs} steps, sparsity 0.80" in capsys.readouterr().out


def test_a_pruned_network_is_compiled(capsys):
    load_script("examples/compile_pruned.py")
    (line,) = capsys.readouterr().out.splitlines()
    told, _, number = line.partition(": ")
    assert told == "largest difference"
    assert 0 < float(number) < 1e-3


def test_what_the_page_about_prediction_shows_works(features):
    page = Path(__file__).parents[1] / "docs" / "prediction.md"
    cascade, pruned = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    x, y = features
    ensemble = ft.DenseEnsemble(tickets=2).fit("mlp-8", features, epochs=1, quiet=True)
    names = {"ft": ft, "ensemble": ensemble, "x": x, "y": y, "photos": x[:5]}
    exec(cascade, names)
    assert names["log_proba"].shape == (5, 3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    exec(pruned, names | {"model": model, "images": x} | (found := {"torch": torch}), found)
    assert torch.allclose(found["prediction"], model(x), atol=1e-5)
