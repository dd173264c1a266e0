from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freetickets.evaluation import Predictions

Cli = Callable[..., Any]
OneLine = Callable[[Any], str]


def test_it_gives_what_train_printed(cli: Cli, trained: Any) -> None:
    (trained.folder / "metrics.json").unlink()
    answer = cli("evaluate", trained.folder, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == trained.printed["scores"]
    assert json.loads((trained.folder / "metrics.json").read_text()) == trained.printed["scores"]
    table = cli("evaluate", trained.folder, "-b", 7).out
    assert f"{trained.printed['scores']['ensemble']['nll']:.4f}" in table
    assert "member 2" in table


def test_the_scores_are_those_of_the_saved_predictions(cli: Cli, trained: Any) -> None:
    scores = json.loads(cli("evaluate", trained.folder, "--json").out)
    saved = Predictions.load(trained.folder / "predictions" / "bars.npz")
    assert saved.log_probs.shape == (2, 45, 3)
    assert saved.scores() == scores
    right = np.exp(saved.log_probs.astype(float)).mean(0).argmax(-1) == saved.labels
    assert scores["ensemble"]["accuracy"] == right.mean()
    assert scores["member_mean"]["nll"] == np.mean([member["nll"] for member in scores["members"]])


def test_a_folder_without_tickets_is_one_line(cli: Cli, one_line: OneLine, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert "no tickets in" in one_line(cli("evaluate", folder))
    assert "no tickets in" in one_line(cli("predict", tmp_path, "x.png"))


def test_a_run_that_is_still_training_is_one_line(
    cli: Cli, one_line: OneLine, trained: Any
) -> None:
    (trained.folder / "tickets" / "02.safetensors").unlink()
    line = one_line(cli("evaluate", trained.folder))
    assert "has 1 of 2 tickets: the run is still training, or was stopped" in line


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda _: b"", lambda d: d[:200] + b"?" + d[201:]]
)
def test_a_damaged_ticket_is_named(
    cli: Cli, one_line: OneLine, trained: Any, damage: Callable[[bytes], bytes]
) -> None:
    file = trained.folder / "tickets" / "02.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    assert f"{file} is damaged" in one_line(cli("evaluate", trained.folder))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--device cuda", "can't use --device cuda"),
        ("--device nonsense", "can't use --device nonsense"),
        ("-b 0", "batch size 0"),
        ("--model mlp-9", "does not fit the ticket"),
        ("--model mpl-8", "did you mean 'mlp-8'?"),
    ],
)
def test_a_wrong_flag_is_one_line(
    cli: Cli, one_line: OneLine, trained: Any, flags: str, message: str
) -> None:
    assert message in one_line(cli("evaluate", trained.folder, *flags.split()))


def test_the_device_that_train_takes_by_default_works_here(cli: Cli, trained: Any) -> None:
    answer = cli("evaluate", trained.folder, "--json", "--device", "auto")
    scores = json.loads(answer.out)
    assert scores["ensemble"]["accuracy"] == trained.printed["scores"]["ensemble"]["accuracy"]


def test_data_that_has_moved_is_one_line(
    cli: Cli, one_line: OneLine, images_npz: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved.npz"
    moved.write_bytes(images_npz.read_bytes())
    flags = ["--model", "mlp-8", "--epochs", "1", "--quiet", "--json"]
    assert cli("train", "dense", "--dataset", moved, *flags, "-o", tmp_path / "run").code == 0
    moved.unlink()
    assert f"no data set at {moved}" in one_line(cli("evaluate", tmp_path / "run"))
