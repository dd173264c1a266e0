import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import freetickets as ft
from freetickets.reading import read_json

from ..conftest import interrupt


def test_json_keys_are_stable_a_table_is_printed_and_a_folder_holds_what_it_promises(trained, cli):
    printed = trained.printed
    assert list(printed) == ["output", "scores", "ledger"]
    scores = printed["scores"]
    keys = ["dataset", "samples", "members", "member_mean", "ensemble"]
    assert list(scores) == [*keys, "settings", "more", "diversity", "layers"]
    assert scores["samples"] == 45
    assert scores["ensemble"]["accuracy"] > 0.6, "it learned"
    assert len(scores["members"]) == 2
    for row in (*scores["members"], scores["member_mean"], scores["ensemble"]):
        assert list(row) == ["accuracy", "nll", "ece"]
    assert min(printed["ledger"]["relative_flops"], printed["ledger"]["seconds"]) > 0
    found = sorted(str(f.relative_to(trained.folder)) for f in trained.folder.rglob("*.*"))
    checkpoints = [name for name in found if name.startswith("checkpoint/")]
    assert len(checkpoints) == 2
    assert [name for name in found if name not in checkpoints] == [
        *("choices.json", "config.yaml", "ledger.json", "log.csv", "metrics.json"),
        *("predictions/bars.npz", "predictions/networks.json"),
        *("tickets/01.safetensors", "tickets/02.safetensors"),
    ]
    assert read_json(trained.folder / "metrics.json") == scores
    assert read_json(trained.folder / "ledger.json") == printed["ledger"]
    answer = cli(*trained.command, "-o", trained.folder)
    assert (answer.code, answer.err) == (0, "")
    scores = trained.printed["scores"]["ensemble"]
    (row,) = (line for line in answer.out.splitlines() if "ensemble" in line)
    _, *cells = (cell.strip() for cell in row.strip("│ ").split("│"))
    assert cells == [f"{scores['accuracy']:.2%}", *(f"{scores[k]:.4f}" for k in ("nll", "ece"))]
    assert answer.out.splitlines()[-1] == f"saved in {trained.folder}"


def test_without_an_output_the_folder_is_named_after_the_run(small_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, printed = small_run("dense", "--seed", 3, output=None)
    assert printed["output"] == "runs/dense-bars-3"
    assert (tmp_path / folder / "tickets/01.safetensors").exists()


def test_flags_win_over_a_config_file(cli, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "method: dst\nmodel: mlp-8\nlr: 1e-3\nepochs: 3\noptions: {tickets: 5, rate: 0.2}\n"
    )

    def plan(*flags):
        return json.loads(cli("plan", *flags, "--json").out)["plan"]

    by_file = plan("--config", file)
    assert (by_file["method"], len(by_file["runs"])) == ("dst", 5)
    (phase,) = by_file["runs"][0]["phases"]
    assert (phase["schedule"][0]["lr"], phase["exploration"]["rate"]) == (0.001, 0.2)
    assert sum(part["epochs"] for part in phase["schedule"]) == pytest.approx(3)
    by_flags = plan(f"--config={file}", "--tickets", 2, "--lr", 0.5, "--seed", 7)
    assert [run["seed"] for run in by_flags["runs"]] == [7, 8]
    (phase,) = by_flags["runs"][0]["phases"]
    assert (phase["schedule"][0]["lr"], phase["exploration"]["rate"]) == (0.5, 0.2)
    # The options of one method are not those of another.
    (run,) = plan("edst", "--config", file)["runs"]
    assert (len(run["phases"]), run["phases"][0]["exploration"]["rate"]) == (4, 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epohcs: 3", "unknown setting in mine.yaml: 'epohcs': did you mean 'epochs'?"),
        ("options: {tikets: 3}", "unknown option of edst 'tikets': did you mean 'tickets'?"),
        ("", "mine.yaml must hold settings"),
        ("!!python/object/apply:os.system ['touch run-by-yaml']", "mine.yaml is not valid YAML"),
        ("epochs: ten", "mine.yaml: epochs must be a number, not 'ten'"),
        ("\xff", "can't read mine.yaml"),
    ],
)
def test_a_broken_config_file_is_one_line(cli, one_line, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(text, encoding="latin-1")
    for command in ("plan", "train"):
        assert message in one_line(cli(command, "--config", "mine.yaml"))
    assert os.listdir() == ["mine.yaml"]


def test_the_saved_settings_make_the_same_run_again(cli, trained, tmp_path, digests):
    again, config = tmp_path / "again", trained.folder / "config.yaml"
    answer = cli("train", "--config", config, "-o", again, "--quiet", "--json")
    assert answer.code == 0
    assert json.loads(answer.out)["scores"] == trained.printed["scores"]
    assert digests(again / "tickets") == digests(trained.folder / "tickets")
    saved = [yaml.safe_load((f / "config.yaml").read_text()) for f in (trained.folder, again)]
    assert [config.pop("output") for config in saved] == [trained.printed["output"], str(again)]
    assert saved[0] == saved[1]
    assert None not in [saved[0][name] for name in ("recipe", "lr", "batch_size", "validation")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_the_command_goes_on(cli, trained, tmp_path, digests, at_step, number):
    folder = tmp_path / "stopped"
    for steps in (5, 16):
        at_step(steps, lambda: interrupt(number))
        answer = cli(*trained.command, "-o", folder)
        assert (answer.code, answer.out) == (130, "")
        (line,) = answer.err.splitlines()
        assert line.startswith("freetickets: stopped in run 1 after step ")
        assert line.endswith(f"saved in {folder}: run the same command again to continue")
    at_step(0)
    answer = cli(*[flag for flag in trained.command if flag != "--quiet"], "--json", "-o", folder)
    assert answer.code == 0
    assert answer.err.startswith("resuming run 1 after step 21, 1 of 2 tickets collected\n")
    assert json.loads(answer.out)["scores"] == trained.printed["scores"]
    assert digests(folder / "tickets") == digests(trained.folder / "tickets")
    rows, wanted = (
        [line.rsplit(",", 2)[0] for line in (each / "log.csv").read_text().splitlines()]
        for each in (folder, trained.folder)
    )
    assert rows == wanted  # without the times and the seal


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--device cuda", "can't use --device cuda"),
        ("--augmentation flip", "augmentation 'flip' is not for images in memory"),
        ("--sparsity 0.9999", "without a single weight"),
        ("--lr 1e30", "or check the data"),
        ("--lr 50 --momentum 0", "the training has diverged: its loss is "),
        ("--validation 0.0001", "leaves a side empty"),
        ("-o {folder}/log.csv/run", "can't write"),
        ("-o {folder} --lr 0.7 -b 32", "batch_size: 16 -> 32; lr: 0.05 -> 0.7): use the same"),
    ],
)
def test_what_only_data_and_network_tell_is_said(cli, one_line, trained, tmp_path, flags, message):
    flags = flags.format(folder=trained.folder).split()
    assert message in one_line(cli(*trained.command, "-o", tmp_path / "run", *flags))


def test_own_validation_data_chooses_and_calibrates(cli, trained, images_npz, tmp_path):
    arrays, folder, own = np.load(images_npz), tmp_path / "run", tmp_path / "own.npz"
    x, y = arrays["x_test"], arrays["y_test"]
    np.savez(own, x=x, y=y)
    command = [*trained.command, "--validation-data", own, "--preset", "paper", "-o", folder]
    answer = cli(*command, "--json")
    assert answer.code == 0, answer.err
    # What is validated on here is the test set, so that both must find the same.
    members = json.loads(answer.out)["scores"]["members"]
    found = [ticket.info["validation_accuracy"] for ticket in ft.load(folder).tickets]
    assert found == pytest.approx([member["accuracy"] for member in members])
    assert cli("evaluate", folder, "--temperature", "ensemble").code == 0
    temperature = json.loads((folder / "metrics.json").read_text())["adjusted"]["temperature"]
    fitted = ft.load(folder).calibrate(x, y).temperature
    assert temperature["values"] == pytest.approx(fitted.values)


def test_a_network_of_ones_own_is_trained_and_named_again_to_be_used(
    cli, one_line, images_npz, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)  # that of another test's folder
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n"
        "def small(input_shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 3))\n"
    )
    flags = ["--dataset", images_npz, "--epochs", 3, "--tickets", 2, "-b", 16, "--quiet"]
    for name, message in (
        ("my_nets:smal", "did you mean 'small'"),
        ("nowhere:small", "cannot import nowhere"),
        ("my_nets:", "package.module:function"),
    ):
        assert message in one_line(cli("train", "edst", *flags, "--model", name))
    own = ["--model", "my_nets:small"]
    trained = cli("train", "edst", *flags, *own, "--json", "-o", "mine")
    assert trained.code == 0
    # Nothing in a folder may choose code to run: the user has to name it.
    assert "pass the same factory" in one_line(cli("evaluate", "mine"))
    assert "pass the same factory" in one_line(cli("predict", "mine", images_npz))
    answer = cli("evaluate", "mine", *own, "--json")
    assert json.loads(answer.out) == json.loads(trained.out)["scores"]
    assert cli("predict", "mine", images_npz, *own).code == 0
    assert "does not fit the ticket" in one_line(cli("evaluate", "mine", "--model", "mlp-8"))
