import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import freetickets as ft
from freetickets.cascade import Cascade, prefixes
from freetickets.evaluation import Predictions
from freetickets.reading import read_json


@pytest.fixture
def scores_of(cli):
    """What `evaluate --json` says, as JSON."""

    def evaluate(*words):
        answer = cli("evaluate", *words, "--json")
        assert (answer.code, answer.err) == (0, "")
        return json.loads(answer.out)

    return evaluate


def test_it_gives_what_train_printed(cli, scores_of, trained):
    wanted = trained.printed["scores"]
    (trained.folder / "metrics.json").unlink()
    assert scores_of(trained.folder) == wanted
    assert read_json(trained.folder / "metrics.json") == wanted
    table = cli("evaluate", trained.folder, "-b", 7).out
    assert f"{wanted['ensemble']['nll']:.4f}" in table
    assert "member 2" in table
    found = scores_of(trained.folder, "--device", "auto")["ensemble"]["accuracy"]
    assert found == wanted["ensemble"]["accuracy"], "the device that train takes by default"
    saved = Predictions.load(trained.folder / "predictions" / "bars.npz")
    assert saved.outputs.shape == (2, 45, 3)
    assert wanted.items() >= saved.scores().items()
    right = np.exp(saved.outputs.astype(float)).mean(0).argmax(-1) == saved.labels
    assert found == right.mean()


def test_what_is_not_all_there_is_one_line(cli, one_line, images_npz, small_run, tmp_path, trained):
    for command in (("evaluate", tmp_path / "no"), ("predict", tmp_path / "no", "x.png")):
        assert "no tickets in" in one_line(cli(*command))
    ticket = trained.folder / "tickets" / "02.safetensors"
    ticket.write_bytes(ticket.read_bytes()[:-5])
    assert f"{ticket} is damaged" in one_line(cli("evaluate", trained.folder))
    ticket.rename(ticket.with_name("03.safetensors"))
    shutil.copy(ticket.with_name("01.safetensors"), ticket)
    ticket.with_name("03.safetensors").unlink()
    assert "give it its own name again" in one_line(cli("evaluate", trained.folder))
    ticket.unlink()
    line = one_line(cli("evaluate", trained.folder))
    assert "has 1 of 2 tickets: the run is still training, or was stopped" in line
    moved = Path(shutil.copy(images_npz, tmp_path / "moved.npz"))
    run, _ = small_run("dense", dataset=moved)
    moved.unlink()
    assert f"no data set at {moved}" in one_line(cli("evaluate", run))


@pytest.mark.parametrize(
    ("scope", "size"), [("ensemble", None), ("members", None), ("members", 1), ("ensemble", 2)]
)
def test_adjustments_are_fitted_on_what_was_held_out(scores_of, trained, images_npz, scope, size):
    flags = ["--temperature", scope, *(["--select", size] if size else [])]
    scores = scores_of(trained.folder, *flags)
    assert read_json(trained.folder / "metrics.json") == scores
    adjusted = scores.pop("adjusted")
    assert scores == trained.printed["scores"]

    arrays = np.load(images_npz)
    held_out = ft.data.hold_out(ft.data.arrays(arrays["x_train"], arrays["y_train"]), 0.1)[1]
    assert held_out is not None
    x, y = held_out.inputs, held_out.labels
    x_test, y_test = arrays["x_test"][:, None], arrays["y_test"]
    pool = ft.load(trained.folder)
    chosen = pool.select(x, y, size) if size else pool
    assert adjusted["chosen"] == [ticket.info["number"] for ticket in chosen.tickets]
    expected = chosen.calibrate(x, y, scope)
    assert adjusted["temperature"]["scope"] == scope
    assert adjusted["temperature"]["values"] == pytest.approx(expected.temperature.values, rel=1e-3)
    joint = np.log(expected.predict_proba(x_test))[None]
    assert adjusted["ensemble"]["nll"] == pytest.approx(ft.metrics.nll(joint, y_test), rel=1e-3)
    members = [ft.metrics.nll(each[None], y_test) for each in expected.member_log_proba(x_test)]
    assert [row["nll"] for row in adjusted["members"]] == pytest.approx(members, rel=1e-3)


def test_what_was_adjusted_is_shown_and_a_choice_alone_has_no_temperature(cli, scores_of, trained):
    plain = cli("evaluate", trained.folder).out
    answer = cli("evaluate", trained.folder, "--temperature", "members")
    adjusted = read_json(trained.folder / "metrics.json")["adjusted"]
    assert set(plain.splitlines()[2:-1]) <= set(answer.out.splitlines())
    assert f"{adjusted['ensemble']['nll']:.4f}" in answer.out
    (line,) = (line for line in answer.out.splitlines() if line.startswith("adjusted on"))
    assert all(f"{value:.3f}" in line for value in adjusted["temperature"]["values"])
    scores = scores_of(trained.folder, "--select", 1)
    (number,) = scores["adjusted"]["chosen"]
    assert scores["adjusted"]["temperature"] is None
    assert scores["adjusted"]["ensemble"] == pytest.approx(scores["members"][number - 1])
    # It outlasts an evaluation without it.
    assert scores_of(trained.folder) == scores_of(trained.folder, "--saved") == scores
    table = cli("evaluate", trained.folder).out
    assert f"adjusted on held-out data: members {number}, no temperature" in table


@pytest.mark.parametrize("scope", ["ensemble", "members"])
def test_adjustments_are_saved_for_predict(cli, scores_of, trained, images_npz, tmp_path, scope):
    best = tmp_path / "best"
    flags = ["--select", 2, "--temperature", scope, "--output", best]
    adjusted = scores_of(trained.folder, *flags)["adjusted"]
    again = scores_of(best)
    assert again["ensemble"] == pytest.approx(adjusted["ensemble"])
    assert again["members"] == [pytest.approx(row) for row in adjusted["members"]]
    assert again["temperature"] == adjusted["temperature"]
    images = np.load(images_npz)["x_test"][:5]
    np.save(tmp_path / "x.npy", images)
    rows = json.loads(cli("predict", best, tmp_path / "x.npy", "--json").out)
    loaded = ft.load(best)
    probs, unsure = loaded.predict_proba(images[:, None]), loaded.uncertainty(images[:, None])
    for i, row in enumerate(rows):
        assert row["probability"] == pytest.approx(probs[i].max(), abs=1e-4)
        assert row["total"] == pytest.approx(unsure.total[i], abs=1e-4)
        assert row["total"] == pytest.approx(row["aleatoric"] + row["epistemic"], abs=2e-6)
    line = cli("evaluate", best, "--temperature", scope).err
    assert "has no config.yaml to say which data its training held out" in line


def test_a_cascade_is_fitted_shown_saved_and_predicts(
    cli, one_line, scores_of, trained, images_npz, tmp_path
):
    best, data = tmp_path / "best", np.load(images_npz)
    flags = ["--temperature", "ensemble", "--cascade", "--output", best]
    table = cli("evaluate", trained.folder, *flags).out
    # Twelve samples were held out: too few to allow anything.
    assert (
        "in turn: 2.00 members per sample on average; share answered by 1, 2 members: 0.0%, 100.0%"
        in table
    )
    loaded = ft.load(best)
    assert loaded.early == Cascade(2, temperatures=loaded.temperature.values)
    x, y = data["x_test"][:, None], data["y_test"]
    joints = prefixes(loaded.member_log_proba(x), temperature=loaded.temperature)
    middle = float(np.median(np.exp(joints[0].max(-1)))) - 1e-6
    sooner = loaded.with_cascade(replace(loaded.early, threshold=middle))
    sooner.save(best)
    scores = scores_of(best, "--cascade")
    assert scores == scores_of(best)
    found, answers = scores["adjusted"], sooner.predict_in_turn(x)
    assert found["cascade"] == {
        "members": 2, "threshold": middle, "combine": "probabilities",
        "temperatures": list(loaded.temperature.values),
    }  # fmt: skip
    assert found["asked"] == np.bincount(answers.asked)[1:].tolist()
    assert 0 < found["asked"][0] < len(x)
    assert len(found["seconds"]) == 2
    assert all(0 < seconds < 60 for seconds in found["seconds"])
    for score in (ft.metrics.accuracy, ft.metrics.nll, ft.metrics.ece):
        wanted = score(answers.log_proba[None], y)
        assert found["in_turn"][score.__name__] == pytest.approx(wanted, rel=1e-4)
    np.save(tmp_path / "x.npy", data["x_test"])
    for size in (7, 256):
        command = ["predict", best, tmp_path / "x.npy", "-b", size, "--cascade", "--json"]
        rows = json.loads(cli(*command).out)
        assert [row["members"] for row in rows] == answers.asked.tolist()
        sure = np.exp(answers.log_proba.max(-1))
        assert [row["probability"] for row in rows] == pytest.approx(sure.tolist(), abs=1e-5)
    line = one_line(cli("predict", trained.folder, tmp_path / "x.npy", "--cascade"))
    assert "has no cascade: run 'freetickets evaluate RUN --cascade" in line


def test_the_networks_as_they_are_predict_the_same(scores_of, cli, trained, images_npz, tmp_path):
    scores = scores_of(trained.folder)
    plain = scores_of(trained.folder, "--no-compile")
    for key, value in scores["ensemble"].items():
        assert plain["ensemble"][key] == pytest.approx(value, abs=1e-6)
    np.save(tmp_path / "x.npy", np.load(images_npz)["x_test"])
    command = ["predict", trained.folder, tmp_path / "x.npy", "--json"]
    rows, plain = (json.loads(cli(*command, *more).out) for more in ([], ["--no-compile"]))
    for row, its in zip(rows, plain, strict=True):
        assert row["class"] == its["class"]
        assert row["total"] == pytest.approx(its["total"], abs=3e-6)


def test_members_of_one_network_are_calibrated_but_not_chosen(cli, scores_of, one_line, small_run):
    run, _ = small_run("mimo", "--members", 2)
    line = one_line(cli("evaluate", run, "--select", "1"))
    assert "can't choose from the members of mimo: they share one network" in line
    line = one_line(cli("evaluate", run, "--cascade"))
    assert "the members of mimo share one network, which answers for all" in line
    adjusted = scores_of(run, "--temperature", "members")["adjusted"]
    assert adjusted["chosen"] == [1, 2]
    assert len(adjusted["temperature"]["values"]) == len(adjusted["members"]) == 2


def test_every_set_has_its_table_and_its_key(cli, scores_of, trained, tmp_path):
    strange = tmp_path / "strange.npy"
    np.save(strange, np.random.default_rng(5).integers(0, 256, (9, 8, 8), dtype=np.uint8))
    flags = ["--corruptions", "fog", "contrast", "--ood", strange, "--attack", "fgsm", "--features"]
    command = [trained.folder, "--data-dir", tmp_path, *flags, "--epsilon", "16/255"]
    answer = cli("evaluate", *command)
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
    assert scores_of(*command) == scores  # all of it was saved
    assert cli("evaluate", *command, "--fresh", "--quiet").err == ""
    assert {"shift", "ood", "attacks", "features"} <= scores_of(trained.folder).keys()


def test_saved_scores_need_no_model_and_no_data(cli, scores_of, one_line, trained, monkeypatch):
    flags = [trained.folder, "--ood", "gaussian-noise", "--samples", "20", "--quiet"]
    scores = scores_of(*flags)
    (trained.folder / "metrics.json").unlink()
    monkeypatch.setattr("freetickets.ensemble.load", None)
    monkeypatch.setattr("freetickets.data.load", None)
    assert scores_of(trained.folder, "--saved") == scores
    assert read_json(trained.folder / "metrics.json") == scores
    (trained.folder / "tickets" / "01.safetensors").unlink()
    for words, message in (
        ((trained.folder, "--ood", "svhn"), "--saved predicts nothing: leave out --ood"),
        ((trained.folder,), "was made by other tickets"),
        (("nowhere",), "no predictions of a test set"),
    ):
        assert message in one_line(cli("evaluate", *words, "--saved"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--device cuda", "can't use --device cuda"),
        ("-b 0", "batch size 0"),
        ("--model mlp-9", "does not fit the ticket"),
        ("--select 3", "can't choose 3 members from a pool of 2"),
        ("--output best", "say how with --select, --temperature or --cascade"),
        ("--select 1 --output {folder}", "holds a run, whose tickets would be replaced"),
        ("--ood fashion-mini", "are 1 x 28 x 28, the ensemble takes 1 x 8 x 8"),
        ("--corruptions all18", "did you mean 'all19'?"),
        ("--attack fgsm --epsilon eight", "--epsilon eight is not a number"),
        ("--attack fgsm --epsilon 1e400", "--epsilon 1e400 is not a number"),
        ("--attack fgsm --epsilon 8", "choose a value above 0 and up to 1"),
        ("--samples 0", "choose at least 1"),
        ("--imagenet-a nowhere", "nowhere is not a folder"),
        ("--corruption fog", "did you mean --corruptions?"),
    ],
)
def test_what_is_not_to_be_had_changes_nothing(cli, one_line, trained, digests, flags, message):
    before = digests(trained.folder)
    flags = flags.format(folder=trained.folder)
    assert message in one_line(cli("evaluate", trained.folder, *flags.split()))
    assert digests(trained.folder) == before


def test_one_member_without_held_out_data_has_no_features_or_adjustments(cli, one_line, small_run):
    run, _ = small_run("dense", "--validation", 0)
    line = one_line(cli("evaluate", run, "--temperature", "ensemble"))
    assert "held no data out" in line
    assert "train it with --validation 0.1" in line
    line = one_line(cli("evaluate", run, "--features"))
    assert "this ensemble has one network: leave --features out" in line
