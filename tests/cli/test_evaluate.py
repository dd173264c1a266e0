import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import freetickets as ft
from freetickets.evaluation import Predictions
from freetickets.reading import read_json


def test_it_gives_what_train_printed(cli, trained):
    (trained.folder / "metrics.json").unlink()
    answer = cli("evaluate", trained.folder, "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == trained.printed["scores"]
    assert read_json(trained.folder / "metrics.json") == trained.printed["scores"]
    table = cli("evaluate", trained.folder, "-b", 7).out
    assert f"{trained.printed['scores']['ensemble']['nll']:.4f}" in table
    assert "member 2" in table
    found = json.loads(cli("evaluate", trained.folder, "--json", "--device", "auto").out)
    wanted = trained.printed["scores"]["ensemble"]["accuracy"]
    assert found["ensemble"]["accuracy"] == wanted, "the device that train takes by default"
    saved = Predictions.load(trained.folder / "predictions" / "bars.npz")
    assert saved.outputs.shape == (2, 45, 3)
    assert found.items() >= saved.scores().items()
    right = np.exp(saved.outputs.astype(float)).mean(0).argmax(-1) == saved.labels
    assert wanted == right.mean()


def test_a_folder_without_all_tickets_is_one_line(cli, one_line, tmp_path, trained):
    for command in (("evaluate", tmp_path / "no"), ("predict", tmp_path / "no", "x.png")):
        assert "no tickets in" in one_line(cli(*command))
    (trained.folder / "tickets" / "02.safetensors").unlink()
    line = one_line(cli("evaluate", trained.folder))
    assert "has 1 of 2 tickets: the run is still training, or was stopped" in line


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda _: b"", lambda d: d[:200] + b"?" + d[201:]]
)
def test_a_damaged_ticket_is_named(cli, one_line, trained, damage):
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
def test_a_wrong_flag_is_one_line(cli, one_line, trained, flags, message):
    assert message in one_line(cli("evaluate", trained.folder, *flags.split()))


def test_data_that_has_moved_is_one_line(cli, one_line, images_npz, small_run, tmp_path):
    moved = Path(shutil.copy(images_npz, tmp_path / "moved.npz"))
    run, _ = small_run("dense", dataset=moved)
    moved.unlink()
    assert f"no data set at {moved}" in one_line(cli("evaluate", run))


# ---- adjustments


def held_out_and_test(images_npz):
    """The samples that training held out, and those of the test."""
    arrays = np.load(images_npz)
    split = ft.data.arrays(arrays["x_train"], arrays["y_train"])
    held_out = ft.data.hold_out(split, 0.1)[1]
    assert held_out is not None
    return held_out.inputs, held_out.labels, arrays["x_test"][:, None], arrays["y_test"]


@pytest.mark.parametrize("scope", ["ensemble", "members"])
@pytest.mark.parametrize("size", [None, 1, 2])
def test_adjustments_are_fitted_on_what_training_held_out_and_scored_on_the_test_set(
    cli, trained, images_npz, scope, size
):
    flags = ["--temperature", scope, *(["--select", size] if size else [])]
    answer = cli("evaluate", trained.folder, "--json", *flags)
    assert (answer.code, answer.err) == (0, "")
    scores = json.loads(answer.out)
    assert read_json(trained.folder / "metrics.json") == scores
    adjusted = scores.pop("adjusted")
    assert scores == trained.printed["scores"]

    x, y, x_test, y_test = held_out_and_test(images_npz)
    pool = ft.load(trained.folder)
    expected = pool.select(x, y, size) if size else pool
    numbers = [ticket.info["number"] for ticket in expected.tickets]
    assert adjusted["chosen"] == numbers
    before = ft.metrics.nll(np.log(expected.predict_proba(x))[None], y.numpy())
    expected = expected.calibrate(x, y, scope)
    assert ft.metrics.nll(np.log(expected.predict_proba(x))[None], y.numpy()) <= before
    assert expected.temperature is not None
    assert adjusted["temperature"]["scope"] == scope
    assert adjusted["temperature"]["values"] == pytest.approx(expected.temperature.values, rel=1e-3)
    joint = np.log(expected.predict_proba(x_test))[None]
    assert adjusted["ensemble"]["nll"] == pytest.approx(ft.metrics.nll(joint, y_test), rel=1e-3)
    members = [ft.metrics.nll(each[None], y_test) for each in expected.member_log_proba(x_test)]
    assert [row["nll"] for row in adjusted["members"]] == pytest.approx(members, rel=1e-3)


def test_a_choice_alone_has_no_temperature(cli, trained):
    scores = json.loads(cli("evaluate", trained.folder, "--json", "--select", 1).out)
    (number,) = scores["adjusted"]["chosen"]
    assert scores["adjusted"]["temperature"] is None
    assert scores["adjusted"]["ensemble"] == pytest.approx(scores["members"][number - 1])
    # It outlasts an evaluation without it.
    assert json.loads(cli("evaluate", trained.folder, "--json").out) == scores
    assert json.loads(cli("evaluate", trained.folder, "--saved", "--json").out) == scores
    table = cli("evaluate", trained.folder).out
    assert f"adjusted on held-out data: members {number}, no temperature" in table


def test_the_table_and_the_report_show_what_they_did_and_the_table_the_adjusted(
    cli, trained, tmp_path
):
    page = tmp_path / "report.html"
    before = json.loads(cli("report", trained.folder, "-o", page, "--json").out)
    plain = cli("evaluate", trained.folder).out
    answer = cli("evaluate", trained.folder, "--temperature", "members")
    adjusted = read_json(trained.folder / "metrics.json")["adjusted"]
    assert set(plain.splitlines()[2:-1]) <= set(answer.out.splitlines())
    assert f"{adjusted['ensemble']['nll']:.4f}" in answer.out
    (line,) = (line for line in answer.out.splitlines() if line.startswith("adjusted on"))
    for value in adjusted["temperature"]["values"]:
        assert f"{value:.3f}" in line
    assert json.loads(cli("report", trained.folder, "-o", page, "--json").out) == before


@pytest.mark.parametrize("scope", ["ensemble", "members"])
def test_what_was_adjusted_is_saved_for_predict(cli, trained, images_npz, tmp_path, scope):
    flags = ["--select", 2, "--temperature", scope, "--output", tmp_path / "best"]
    adjusted = json.loads(cli("evaluate", trained.folder, *flags, "--json").out)["adjusted"]
    again = json.loads(cli("evaluate", tmp_path / "best", "--json").out)
    assert again["ensemble"] == pytest.approx(adjusted["ensemble"])
    assert again["members"] == [pytest.approx(row) for row in adjusted["members"]]
    assert again["temperature"] == adjusted["temperature"]
    saved = Predictions.load(tmp_path / "best" / "predictions" / "bars.npz")
    assert again.items() >= saved.scores().items()
    images = np.load(images_npz)["x_test"][:5]
    np.save(tmp_path / "x.npy", images)
    rows = json.loads(cli("predict", tmp_path / "best", tmp_path / "x.npy", "--json").out)
    loaded = ft.load(tmp_path / "best")
    probs, unsure = loaded.predict_proba(images[:, None]), loaded.uncertainty(images[:, None])
    for i, row in enumerate(rows):
        assert row["probability"] == pytest.approx(probs[i].max(), abs=1e-4)
        assert row["total"] == pytest.approx(unsure.total[i], abs=1e-4)
        assert row["total"] == pytest.approx(row["aleatoric"] + row["epistemic"], abs=2e-6)
    line = cli("evaluate", tmp_path / "best", "--temperature", scope).err
    assert "has no config.yaml to say which data its training held out" in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--temperature member", "did you mean 'members'?"),
        ("--select 0", "choose at least 1 member, not 0"),
        ("--select 3", "can't choose 3 members from a pool of 2"),
        ("--select two", "invalid int value"),
        ("--output best", "say how with --select or --temperature"),
        ("--select 1 --output {folder}", "holds a run, whose tickets would be replaced"),
    ],
)
def test_an_adjustment_that_can_not_be_made_is_one_line_and_changes_nothing(
    cli, one_line, trained, digests, flags, message
):
    before = digests(trained.folder)
    flags = flags.format(folder=trained.folder)
    assert message in one_line(cli("evaluate", trained.folder, *flags.split()))
    assert digests(trained.folder) == before


def test_members_of_one_network_are_calibrated_but_not_chosen_from(cli, one_line, small_run):
    run, _ = small_run("mimo", "--members", 2)
    line = one_line(cli("evaluate", run, "--select", "1"))
    assert "can't choose from the members of mimo: they share one network" in line
    answer = cli("evaluate", run, "--temperature", "members", "--json")
    adjusted = json.loads(answer.out)["adjusted"]
    assert adjusted["chosen"] == [1, 2]
    assert len(adjusted["temperature"]["values"]) == len(adjusted["members"]) == 2


# ---- more sets


def test_every_set_has_its_table_and_its_key(cli, trained, tmp_path):
    strange = tmp_path / "strange.npy"
    np.save(strange, np.random.default_rng(5).integers(0, 256, (9, 8, 8), dtype=np.uint8))
    flags = ["--corruptions", "fog", "contrast", "--ood", strange, "--attack", "fgsm", "--features"]
    command = ["evaluate", trained.folder, "--data-dir", tmp_path, *flags, "--epsilon", "16/255"]
    answer = cli(*command)
    assert answer.code == 0
    scores = read_json(trained.folder / "metrics.json")
    for text in (
        f"{scores['ensemble']['nll']:.4f}",
        f"{scores['shift']['bars-c']['means']['given']['ece_pooled']:.4f}",
        "2 types",
        f"{scores['ood']['strange']['mutual_information']['auroc']:.4f}",
        f"{scores['attacks']['fgsm']['mean']:.2%}",
        "16/255",
        f"{scores['diversity']['kl']:.4f}",
    ):
        assert text in answer.out
    said = answer.err.splitlines()
    sets = "bars-c/fog bars-c/contrast ood/strange attacks/fgsm"
    assert [line.partition("] ")[2].split()[0] for line in said] == sets.split()
    assert said[-1].startswith("[100%]")
    again = cli(*command, "--json")
    assert json.loads(again.out) == scores
    assert again.err == ""  # all of it was saved
    assert cli(*command, "--fresh", "--quiet").err == ""
    for key in ("shift", "ood", "attacks", "features"):
        assert key in json.loads(cli("evaluate", trained.folder, "--json").out)


def test_saved_scores_need_no_model_and_no_data(cli, one_line, trained, monkeypatch):
    command = ["evaluate", trained.folder, "--ood", "gaussian-noise", "--samples", "20", "--json"]
    scores = json.loads(cli(*command).out)
    (trained.folder / "metrics.json").unlink()
    monkeypatch.setattr("freetickets.ensemble.load", None)
    monkeypatch.setattr("freetickets.data.load", None)
    answer = cli("evaluate", trained.folder, "--saved", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out) == scores
    assert read_json(trained.folder / "metrics.json") == scores
    line = one_line(cli("evaluate", trained.folder, "--saved", "--ood", "svhn"))
    assert "--saved predicts nothing: leave out --ood" in line
    (trained.folder / "tickets" / "01.safetensors").unlink()
    line = one_line(cli("evaluate", trained.folder, "--saved"))
    assert "was made by other tickets" in line
    assert "no predictions of a test set" in one_line(cli("evaluate", "nowhere", "--saved"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--ood svnh", "unknown OoD set 'svnh': did you mean 'svhn'?"),
        ("--ood fashion-mini", "are 1 x 28 x 28, the ensemble takes 1 x 8 x 8"),
        ("--corruptions all18", "did you mean 'all19'?"),
        ("--attack fgms", "did you mean 'fgsm'?"),
        ("--attack fgsm --epsilon eight", "--epsilon eight is not a number"),
        ("--attack fgsm --epsilon 1e400", "--epsilon 1e400 is not a number"),
        ("--attack fgsm --epsilon 8", "choose a value above 0 and up to 1"),
        ("--samples 0", "choose at least 1"),
        ("--samples few", "invalid int value"),
        ("--imagenet-a nowhere", "nowhere is not a folder"),
        ("--corruption fog", "did you mean --corruptions?"),
    ],
)
def test_a_set_that_can_not_be_had_is_one_line_and_changes_nothing(
    cli, one_line, trained, digests, flags, message
):
    before = digests(trained.folder)
    assert message in one_line(cli("evaluate", trained.folder, *flags.split()))
    assert digests(trained.folder) == before


def test_one_member_without_held_out_data_has_neither_features_nor_adjustments(
    cli, one_line, small_run, tmp_path
):
    run, _ = small_run("dense", "--validation", 0)
    line = one_line(cli("evaluate", run, "--temperature", "ensemble"))
    assert "held no data out" in line
    assert "train it with --validation 0.1" in line
    line = one_line(cli("evaluate", run, "--features"))
    assert "this ensemble has one network: leave --features out" in line
    answer = cli("evaluate", run, "--all", "--data-dir", tmp_path, "--samples", 3)
    assert answer.code == 0
    assert "diversity" not in answer.out


def test_an_interrupted_evaluation_says_how_to_go_on(cli, trained, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("freetickets.data.corruptions.corrupt", interrupted, raising=False)
    flags = ["--data-dir", tmp_path, "--corruptions", "fog", "--quiet"]
    answer = cli("evaluate", trained.folder, *flags)
    assert answer.code == 130
    assert "0 of 1 sets are predicted and saved; the same command goes on" in answer.err
