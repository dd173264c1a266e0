"""Runs evaluated on their test set and on more: what is predicted, kept, redone and refused."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.data import corruptions
from freetickets.errors import StoppedError, UnknownNameError
from freetickets.evaluation import (
    Predictions,
    Request,
    adjust,
    describe_run,
    evaluate_run,
    predict_dataset,
    summarise,
)
from freetickets.evaluation.sets import EvaluationSet, Predictor, corruption_types
from freetickets.progress import WorkProgress
from freetickets.reading import read_json
from freetickets.storage import write_json


@pytest.fixture
def ensemble(run_folder):
    return ft.load(run_folder)


def test_a_run_is_evaluated_on_its_own_test_set(run_folder, ensemble, images_npz):
    scores = evaluate_run(run_folder, ensemble)
    saved = Predictions.load(run_folder / "predictions" / "bars.npz")
    test = np.load(images_npz)
    assert np.array_equal(saved.labels, test["y_test"])
    expected = ensemble.member_log_proba(test["x_test"][:, None])
    np.testing.assert_allclose(saved.outputs, expected, atol=1e-5)
    assert scores.items() >= saved.scores().items()
    assert summarise(run_folder) == scores
    assert saved.info.items() >= {"split": "test", "method": "dst", "model": "mlp-8"}.items()
    assert saved.info["classes"] == ["top", "middle", "bottom"]


def test_saved_predictions_are_those_before_a_temperature(ensemble, images_npz, tmp_path):
    warm = ensemble.with_temperature(Temperature((3.0, 2.0), "members"))
    raw, scaled = (predict_dataset(each, str(images_npz)) for each in (ensemble, warm))
    assert np.array_equal(raw.outputs, scaled.outputs)
    assert evaluate_run(tmp_path, warm).items() >= scaled.scores().items()
    test = np.load(images_npz)
    expected = ft.metrics.nll(warm.member_log_proba(test["x_test"][:, None]), test["y_test"])
    assert scaled.scores()["ensemble"]["nll"] == pytest.approx(expected, rel=1e-5)
    assert scaled.scores()["ensemble"]["nll"] != raw.scores()["ensemble"]["nll"]


def test_a_run_is_described_and_a_data_set_of_other_classes_refused(refused, ensemble):
    edst = {"method": "edst", "options": {"tickets": 3, "sparsity": 0.8}}
    assert describe_run(edst) == "edst (M=3, S=0.8)"
    for more in ({"options": {"tickets": 1}}, {}):
        assert describe_run({"method": "dense", **more}) == "dense"
    refused(r"other classes .* \(10 and 3\)", predict_dataset, ensemble, "fashion-mini")


@pytest.fixture
def evaluate(run_folder, ensemble, tmp_path):
    """Evaluates the run on what is asked for, with data sets looked for in a folder of the test."""

    def run(**request):
        asked = Request(**request) if request else None
        return evaluate_run(run_folder, ensemble, str(tmp_path), request=asked)

    return run


@pytest.fixture
def predicted(monkeypatch):
    """The sets that were predicted, in order."""
    names = []
    predict = EvaluationSet.predict

    def counted(self, folder, predictor):
        predict(self, folder, predictor)
        names.append(self.name)

    monkeypatch.setattr(EvaluationSet, "predict", counted)
    return names


@pytest.fixture
def strange(tmp_path):
    path = tmp_path / "strange.npy"
    np.save(path, np.random.default_rng(5).integers(0, 256, (9, 8, 8), dtype=np.uint8))
    return path


def test_corrupted_images_are_predicted_by_the_ensemble(run_folder, ensemble, images_npz, evaluate):
    scores = evaluate(corruptions=("contrast", "gaussian_noise"))
    saved = Predictions.load(run_folder / "predictions" / "bars-c" / "contrast.npz")
    told = {"kind": "shift", "corruption": "contrast", "source": "generated"}
    assert saved.info.items() >= told.items()
    assert saved.info["parts"] == ["1", "2", "3", "4", "5"]
    test = np.load(images_npz)
    for severity, part in enumerate(saved.parts, start=1):
        changed = corruptions.corrupt(test["x_test"], "contrast", severity)
        expected = ensemble.member_log_proba(changed[:, None])
        np.testing.assert_allclose(part.outputs, expected, atol=1e-4)
        assert np.array_equal(part.labels, test["y_test"])
    found = scores["shift"]["bars-c"]
    assert found["types"] == ["gaussian_noise", "contrast"]
    assert (found["samples"], list(found["means"])) == (45, ["given"])


def test_a_corrupted_folder_below_the_data_root_is_preferred(
    refused, run_folder, ensemble, images_npz, tmp_path, evaluate
):
    test = np.load(images_npz)
    folder = tmp_path / "bars-C"
    folder.mkdir()
    np.save(folder / "frost.npy", np.concatenate([test["x_test"] // s for s in range(1, 6)]))
    np.save(folder / "labels.npy", np.tile(test["y_test"], 5))
    evaluate(corruptions=("frost",))
    saved = Predictions.load(run_folder / "predictions" / "bars-c" / "frost.npz")
    assert saved.info["source"] == "folder"
    assert "frost" not in saved.info
    expected = ensemble.member_log_proba((test["x_test"] // 4)[:, None])
    np.testing.assert_allclose(saved.parts[3].outputs, expected, atol=1e-4)
    write_json(folder / "corruptions.json", {"frost": "files"})
    scores = evaluate(corruptions=("frost",))
    assert scores["shift"]["bars-c"]["frost"] == "files"
    refused(r"lacks gaussian_noise.npy", evaluate, corruptions=("all19",))


def test_ood_images_are_normalised_as_the_training_set_is(run_folder, ensemble, strange, evaluate):
    scores = evaluate(ood=(str(strange),))
    saved = Predictions.load(run_folder / "predictions" / "ood" / "strange.npz")
    assert set(saved.labels) == {-1}
    assert saved.info["dataset"] == "strange"
    pixels = torch.from_numpy(np.load(strange))[:, None].float() / 255
    mean, std = (torch.tensor(ensemble.info[key]).view(1, -1, 1, 1) for key in ("mean", "std"))
    expected = ensemble.member_log_proba((pixels - mean) / std)
    np.testing.assert_allclose(saved.outputs, expected, atol=1e-4)
    assert scores["ood"]["strange"]["samples"] == 9


def test_ood_sets_are_called_by_their_paths_and_predicted_again_where_they_changed(
    refused, evaluate, strange, tmp_path, monkeypatch, predicted
):
    for name in ("v1.0", "v1.1"):  # what follows a dot is kept of folders
        (tmp_path / name).mkdir()
        noise = np.random.default_rng(len(name)).integers(0, 256, (8, 8), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / name / "one.png")
    monkeypatch.chdir(tmp_path / "v1.0")
    assert list(evaluate(ood=(".", "../v1.1", str(strange)))["ood"]) == ["strange", "v1.0", "v1.1"]
    np.save(strange, 255 - np.load(strange))
    predicted.clear()
    evaluate(ood=(".", str(strange)))
    assert predicted == ["ood/strange"]
    twin = tmp_path / "v1.0" / "strange.npy"
    twin.write_bytes(strange.read_bytes())
    refused("two OoD sets would be called ood/strange", evaluate, ood=(str(strange), str(twin)))


def test_training_data_is_not_out_of_distribution(refused, images_npz, tmp_path, evaluate):
    arrays = np.load(images_npz)
    for split in ("x_train", "x_test"):
        np.save(tmp_path / "known.npy", arrays[split])
        refused("are not out of distribution", evaluate, ood=(str(tmp_path / "known.npy"),))
    words = "is what the ensemble was trained on: leave it out"
    refused(words, evaluate, ood=(str(images_npz.resolve()),))


def test_attacks_and_features_stand_beside_the_other_scores(run_folder, evaluate):
    scores = evaluate(attacks=("fgsm", "pgd"), epsilon=0.2, features=True)
    assert scores["attacks"]["fgsm"]["epsilon"] == 0.2
    assert scores["attacks"]["fgsm"]["clean"] == scores["ensemble"]["accuracy"]
    assert scores["attacks"]["fgsm"]["mean"] < scores["attacks"]["fgsm"]["clean"]
    assert np.shape(scores["attacks"]["pgd"]["transfer"]) == (2, 2)
    assert scores["attacks"]["pgd"]["steps"] > 1
    assert all(np.shape(row["kl_matrix"]) == (2, 2) for row in scores["features"])
    assert [row["name"] for row in scores["layers"]] == [
        f"{r['layer']}.weight" for r in scores["features"]
    ]
    assert summarise(run_folder) == scores
    assert evaluate() == scores  # it asks for nothing, and so keeps it all


def test_what_is_saved_and_fits_is_not_predicted_again(run_folder, predicted, strange, evaluate):
    evaluate(corruptions=("fog",), ood=(str(strange),))
    assert predicted == ["bars", "bars-c/fog", "ood/strange"]
    predicted.clear()
    scores = evaluate(corruptions=("fog", "snow"), ood=(str(strange),))
    assert predicted == ["bars-c/snow"]
    assert scores["shift"]["bars-c"]["types"] == ["snow", "fog"]
    predicted.clear()
    evaluate()
    assert predicted == ["bars"]  # a run is scored again by predicting again
    predicted.clear()
    evaluate(corruptions=("fog",), fresh=True)
    assert predicted == ["bars", "bars-c/fog"]
    predicted.clear()
    evaluate(corruptions=("fog", "snow"), samples=7)
    assert predicted == ["bars-c/fog", "bars-c/snow"]  # the whole test set will do
    assert summarise(run_folder)["samples"] == 45


def test_corruptions_of_other_samples_are_never_averaged(refused, run_folder, predicted, evaluate):
    evaluate(corruptions=("fog", "snow"))
    predicted.clear()
    refused(r"snow.npz was saved with other --samples", evaluate, corruptions=("fog",), samples=7)
    assert predicted == []
    (run_folder / "predictions" / "bars-c" / "snow.npz").unlink()
    assert evaluate(corruptions=("fog",), samples=7)["shift"]["bars-c"]["types"] == ["fog"]


def test_other_tickets_are_predicted_anew_and_the_rest_is_named_and_left_out(
    run_folder, ensemble, predicted, tmp_path, strange, evaluate, capsys
):
    before = evaluate(corruptions=("fog",), ood=(str(strange),))
    ticket = ensemble.tickets[0]
    for name, weight in ticket.state.items():
        if weight.is_floating_point():
            ticket.state[name] = weight * 1.5
    ticket.save(run_folder / "tickets" / "01.safetensors")
    predicted.clear()
    again = Request(corruptions=("fog",))
    after = evaluate_run(run_folder, ft.load(run_folder), str(tmp_path), request=again)
    assert predicted == ["bars", "bars-c/fog"]
    assert "ood" not in after
    assert after["shift"] != before["shift"]
    (line,) = capsys.readouterr().err.splitlines()
    assert "strange.npz was made by other tickets: it is left out" in line


def test_adjustments_are_kept_until_the_tickets_change(run_folder):
    ensemble = ft.load(run_folder)
    adjusted = adjust(run_folder, ensemble, size=1, scope="ensemble")
    first = evaluate_run(run_folder, ensemble, adjusted=adjusted)
    assert evaluate_run(run_folder, ensemble) == first
    assert summarise(run_folder)["adjusted"] == first["adjusted"]
    (run_folder / "tickets" / "02.safetensors").unlink()
    other = ft.load(run_folder, partial=True)
    assert "adjusted" not in evaluate_run(run_folder, other)


def test_fewer_samples_are_the_first_and_are_recorded(refused, run_folder, images_npz, evaluate):
    asked = {"corruptions": ("frost",), "attacks": ("fgsm",), "ood": ("gaussian-noise",)}
    scores = evaluate(**asked, samples=11)
    assert scores["shift"]["bars-c"]["frost"] == "synthetic"  # as it was made here
    found = scores["shift"]["bars-c"], scores["attacks"]["fgsm"], scores["ood"]["gaussian-noise"]
    assert [each["samples"] for each in (scores, *found)] == [11] * 4
    saved = Predictions.load(run_folder / "predictions" / "bars.npz")
    assert saved.info["samples"] == 11
    assert np.array_equal(saved.labels, np.load(images_npz)["y_test"][:11])
    assert evaluate(samples=99)["samples"] == 45
    refused("--samples 0: choose at least 1", evaluate, samples=0)


def test_an_interruption_leaves_what_is_finished_and_the_next_run_goes_on(
    run_folder, predicted, evaluate, monkeypatch
):
    asked = ("fog", "snow", "contrast")
    corrupt = corruptions.corrupt

    def interrupted(images, name, *rest, **options):
        if name == "snow":
            raise KeyboardInterrupt
        return corrupt(images, name, *rest, **options)

    monkeypatch.setattr(corruptions, "corrupt", interrupted, raising=False)
    with pytest.raises(StoppedError, match=r"2 of 4 sets are predicted and saved; run it again"):
        evaluate(corruptions=asked)
    files = sorted(path.name for path in run_folder.rglob("predictions/bars-c/*"))
    assert files == ["fog.npz"]
    predicted.clear()
    monkeypatch.setattr(corruptions, "corrupt", corrupt)
    evaluate(corruptions=asked)
    assert predicted == ["bars-c/snow", "bars-c/contrast"]


def test_everything_takes_what_is_here_and_says_what_is_not(run_folder, ensemble, tmp_path, capsys):
    request = Request(everything=True, samples=3)
    progress = WorkProgress()
    scores = evaluate_run(run_folder, ensemble, str(tmp_path), request=request, progress=progress)
    assert set(scores["shift"]["bars-c"]["means"]) == {"all19", "common15", "ub"}
    assert set(scores["ood"]) == {"gaussian-noise", "additive-noise"}
    assert set(scores["attacks"]) == {"fgsm"}
    assert scores["features"]
    said = capsys.readouterr().err.splitlines()
    assert any("left out" in line and "svhn, cifar10" in line for line in said)
    assert any(line.startswith("[100%] attacks/fgsm") and "samples/s" in line for line in said)


def test_everything_of_features_and_one_member_is_what_can_be_done(refused, features, tmp_path):
    x, y = (each.numpy() for each in features)
    path = tmp_path / "points.npz"
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    ensemble = ft.Dense().fit("mlp-8", str(path), epochs=1, quiet=True, output=tmp_path / "run")
    scores = evaluate_run(tmp_path / "run", ensemble, request=Request(everything=True))
    assert not {"shift", "ood", "attacks", "features", "layers", "diversity"} & set(scores)
    for request, message in (
        (Request(corruptions=("fog",)), "corruptions are for images"),
        (Request(attacks=("fgsm",)), "attacks change pixels"),
        (Request(features=True), "has one network: leave --features out"),
        (Request(ood=("gaussian-noise",)), "is for images"),
    ):
        refused(message, evaluate_run, tmp_path / "run", ensemble, request=request)


def test_each_type_counts_once_and_unknown_names_are_said_before_predicting(predicted, evaluate):
    assert corruption_types(["fog", "elastic", "fog"], 10) == ["fog", "elastic_transform"]
    assert len(corruption_types(["common15", "fog", "saturate"], 10)) == 16
    for asked, message in (
        ({"corruptions": ("frog",)}, "unknown corruption 'frog': did you mean 'fog'"),
        ({"ood": ("minst",)}, "unknown OoD set 'minst': did you mean 'mnist'"),
        ({"attacks": ("fgms",)}, "unknown attack 'fgms': did you mean 'fgsm'"),
    ):
        with pytest.raises(UnknownNameError, match=message):
            evaluate(**asked)
    assert predicted == []


def test_predicting_in_pieces_is_predicting_at_once(ensemble, monkeypatch):
    split = ft.data.load("fashion-mini", "test").subset(range(50))
    images = ft.data.Split(split.inputs[:, :, :8, :8].contiguous(), split.labels)
    whole = Predictor(ensemble, 16).predict([images, images], {"dataset": "x"})
    monkeypatch.setattr("freetickets.evaluation.sets._AT_ONCE", 20)
    pieces = Predictor(ensemble, 16).predict([images, images], {"dataset": "x"})
    assert np.array_equal(whole.outputs, pieces.outputs)
    assert len(pieces.labels) == 100


# ---- photos


@pytest.fixture
def photo_run(tmp_path):
    """A run on photos of three classes, whose crops are of 100 pixels a side."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 2)):
        for name in ("n01", "n02", "n03"):
            for number in range(count):
                path = tmp_path / "photos" / split / name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(rng.integers(0, 256, (100, 100, 3), dtype=np.uint8)).save(path)
    settings = {"epochs": 1, "batch_size": 4, "quiet": True, "validation": 0.0}
    method = ft.DenseEnsemble(tickets=2)
    ensemble = method.fit(
        "mlp-4", str(tmp_path / "photos"), image_size=100, output=tmp_path / "run", **settings
    )
    return tmp_path / "run", ensemble


def test_photos_are_shifted_by_folders_only(refused, photo_run, tmp_path):
    folder, ensemble = photo_run
    asked = {"data_dir": str(tmp_path), "request": Request(corruptions=("fog",))}
    words = "photos-C is missing: photos are not corrupted"
    refused(words, evaluate_run, folder, ensemble, **asked)
    for severity in range(1, 6):
        for name in ("n01", "n03"):
            path = tmp_path / "photos-C" / "fog" / str(severity) / name / "a.png"
            path.parent.mkdir(parents=True)
            Image.new("RGB", (100, 100), (40 * severity, 0, 0)).save(path)
    scores = evaluate_run(folder, ensemble, **asked)
    assert scores["shift"]["photos-c"]["samples"] == 2
    saved = Predictions.load(folder / "predictions" / "photos-c" / "fog.npz")
    assert saved.labels.tolist() == [0, 2] * 5
    (tmp_path / "photos-C" / "fog" / "5" / "n01" / "a.png").unlink()
    refused("differ in the number of images", evaluate_run, folder, ensemble, **asked)


def test_imagenet_a_is_scored_among_all_classes_and_its_own(photo_run, tmp_path):
    folder, ensemble = photo_run
    for name in ("n01", "n03"):
        path = tmp_path / "imagenet-a" / name / "a.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (130, 110), (200, 0, 0)).save(path)
    request = Request(imagenet_a=str(tmp_path / "imagenet-a"))
    scores = evaluate_run(folder, ensemble, request=request)
    saved = Predictions.load(folder / "predictions" / "imagenet-a.npz")
    assert saved.info["classes_200"] == [0, 2]
    assert saved.labels.tolist() == [0, 2]
    ways = scores["natural"]["imagenet-a"]
    assert ways["200-way"]["nll"] < ways["1000-way"]["nll"]
    assert ways["200-way"]["accuracy"] == 0.5  # the same picture twice


def test_features_are_computed_again_for_more_samples_and_outlive_a_fresh_test_set(evaluate):
    few = evaluate(features=True, samples=3)["features"]
    every = evaluate(features=True)["features"]
    assert every != few
    assert evaluate(fresh=True)["features"] == every
    assert evaluate(features=True, samples=3)["features"] == every  # as for the test set: more stay


def test_ood_sets_are_left_out_when_fewer_test_samples_are_saved(evaluate, strange, capsys):
    whole = evaluate(ood=(str(strange),))
    assert "ood" not in evaluate(samples=5)
    assert "more than the 5 test samples" in capsys.readouterr().err
    assert evaluate(ood=(str(strange),))["ood"] == whole["ood"]


def test_changed_test_images_are_never_mixed_with_others(run_folder, images_npz, tmp_path, capsys):
    before = images_npz.read_bytes()
    evaluate_run(run_folder, ft.load(run_folder), request=Request(attacks=("fgsm",)))
    arrays = dict(np.load(images_npz))
    arrays["x_test"] = 255 - arrays["x_test"]
    try:
        np.savez(images_npz, **arrays)
        scores = evaluate_run(run_folder, ft.load(run_folder))
    finally:
        images_npz.write_bytes(before)
    assert "attacks" not in scores
    assert "is of other test images" in capsys.readouterr().err


def test_a_damaged_file_of_values_is_written_again_also_under_a_right_seal(run_folder, evaluate):
    scores = evaluate()
    networks, results = run_folder / "predictions/networks.json", run_folder / "metrics.json"
    for path, key, value in (
        (networks, "features", 3),
        (networks, "features", [{"layer": "conv", "kl": "far"}]),
        (networks, "layers", [{"name": 1, "density": [0.5]}]),
        (networks, "feature_samples", "all"),
        (results, "adjusted", {"chosen": [0]}),
        (results, "adjusted", [1]),
    ):
        write_json(path, {**read_json(path), key: value})
        assert evaluate() == scores
        assert read_json(path).get(key) != value
    for path, content in itertools.product((networks, results), ("{", "[]", "{}")):
        path.write_text(content)
        assert evaluate() == scores
        assert read_json(path)


def test_a_test_set_of_damaged_numbers_is_predicted_again(run_folder, evaluate, strange, predicted):
    evaluate()
    path = run_folder / "predictions" / "bars.npz"
    saved = Predictions.load(path)
    Predictions(saved.outputs[:, 1:], saved.labels, saved.info).save(path)
    evaluate(ood=(str(strange),))
    assert predicted == ["bars", "bars", "ood/strange"]
