"""`Method.fit`: what it takes, and what it leaves alone."""

import inspect
import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import StackDataset, TensorDataset

import freetickets as ft
from freetickets.config import Config
from freetickets.data import Split
from freetickets.training.job import Job

from .conftest import Noisy

SMALL = {"batch_size": 10, "epochs": 3, "quiet": True}
DST = ft.DST(tickets=2, sparsity=0.5, interval=3)
EDST = ft.EDST(tickets=2, sparsity=0.5, interval=3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x)


class Scaled(Net):
    """A network with a parameter of its own, which nobody knows how to initialise anew."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


# ---- networks


def test_the_options_of_fit_are_in_its_signature_and_its_help():
    for fit in (ft.EDST().fit, ft.EDST.fit, ft.Static(tickets=2).fit):
        options = inspect.signature(fit).parameters
        assert {"quiet", "output", "epochs", "lr", "seed", "device"} <= set(options)
        assert options["seed"].default == Config().seed
        assert "method" not in inspect.signature(ft.EDST().fit).parameters
        assert "recipe `small`" in inspect.getdoc(fit)


def test_one_network_is_trained_from_its_own_values_and_several_are_initialised_anew(features):
    network = Net()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    ensemble = ft.Static(tickets=1).fit(network, features, lr=1e-12, **SMALL)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    (ticket,) = ensemble.tickets
    name = "body.0.weight"
    torch.testing.assert_close(ticket.state[name], before[name] * ticket.topology[name])
    assert ensemble.predict_proba(features[0]).shape == (60, 3)
    network = Net()
    tickets = ft.DenseEnsemble(tickets=2).fit(network, features, lr=1e-12, **SMALL).tickets
    weights = [network.body[0].weight, *(ticket.state["body.0.weight"] for ticket in tickets)]
    assert not any(torch.isclose(a, b).any() for a, b in combinations(weights, 2))


def test_what_can_not_be_initialised_anew_needs_a_factory_of_every_network(refused, features):
    for network, name in ((Scaled(), "the model"), (nn.Sequential(nn.Linear(6, 3), Scaled()), "1")):
        words = f"'{name}' can't be init.*: pass a factory"
        refused(words, DST.fit, network, features, **SMALL)
    assert len(EDST.fit(Scaled(), features, **SMALL)) == 2  # one network, nothing to make anew
    first, second = (ticket.state for ticket in DST.fit(Scaled, features, **SMALL).tickets)
    assert not any(torch.equal(first[n], second[n]) for n in first if n.endswith("0.weight"))


# ---- data


def test_arrays_tensors_splits_and_datasets_of_the_same_samples_train_the_same(features):
    x, y = features
    kinds: list[Any] = [
        (x, y), [x.numpy(), y.numpy().astype(np.int32)], (x.double().numpy(), y.tolist()),
        Split(x, y), TensorDataset(x, y), StackDataset(x.numpy(), y.tolist()),
    ]  # fmt: skip
    tickets = [EDST.fit("mlp-8", data, **SMALL).tickets[-1] for data in kinds]
    for ticket in tickets[1:]:
        assert torch.equal(ticket.state["fc1.weight"], tickets[0].state["fc1.weight"])


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (3, 8, 8), (8, 8, 3)], ids=str)
def test_uint8_images_are_normalised_alike_in_training_and_prediction(shape):
    rng = np.random.default_rng(0)
    images = rng.integers(50, 90, (40, *shape), dtype=np.uint8)
    ensemble = EDST.fit("mlp-8", (images, np.arange(40) % 2), **SMALL)
    channels_first = ft.data.arrays(images, np.arange(40)).inputs
    pixels = channels_first.double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3))
    np.testing.assert_allclose(ensemble.info["mean"], mean, rtol=1e-6)
    normalised = (pixels - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
    expected = ensemble.predict_proba(channels_first)
    np.testing.assert_allclose(expected, ensemble.predict_proba(normalised), atol=1e-5)
    for same in (images, StackDataset(images, [0] * 40)):  # in the layout of the training
        assert np.array_equal(ensemble.predict_proba(same), expected)


def test_the_random_transforms_of_a_dataset_live_and_tell_it_apart(refused, features, tmp_path):
    dataset = Noisy(features)
    ft.Dense().fit("mlp-8", dataset, validation=0.0, output=tmp_path, **SMALL)
    assert {len(values) for values in dataset.given.values()} == {3}  # one in each epoch
    other, settings = Noisy(features, noise=2.0), {**SMALL, "validation": 0.0, "output": tmp_path}
    refused(r"\(dataset: dataset-\w+ -> data", ft.Dense().fit, "mlp-8", other, **settings)


@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "b", "c"], [5, 7, 100]], ids=str)
def test_labels_make_only_classes_that_are_there_and_come_back(refused, features, tmp_path, values):
    x, y = features
    labels = np.array(values)[y]
    trained = ft.Dense().fit("mlp-8", (x, labels), output=tmp_path, **{**SMALL, "epochs": 20})
    for ensemble in (trained, ft.load(tmp_path)):
        assert ensemble.classes == tuple(map(str, values))
        assert ensemble.predict_proba(x).shape == (60, 3)
        found = ensemble.predict(x)
        assert found.dtype.kind == labels.dtype.kind
        assert (found == labels).mean() > 0.8
    calibrated = trained.calibrate(x, labels)
    assert calibrated.temperature == trained.calibrate(x, np.array(values)[y.tolist()]).temperature
    refused("not a class of the training", trained.calibrate, x, ["z"] * 60)


def test_booleans_are_labels_and_outputs_without_a_class_have_no_name(refused, features):
    x, y = features[0].clone(), features[1]
    ensemble = ft.Dense().fit("mlp-8", (x, y == 1), **SMALL)
    assert ensemble.classes == ("False", "True")
    assert ensemble.predict(x).dtype == bool
    ensemble = ft.Dense().fit(nn.Linear(6, 9), (x, np.array(["a", "b"])[y % 2]), **SMALL)
    assert set(ensemble.predict(x)) <= {"a", "b"}
    x[50, 2] = torch.nan
    for call in (ensemble.predict, ensemble.predict_proba, ensemble.uncertainty):
        refused("not finite: remove NaN and infinity", call, x)


class Words(nn.Module):
    """Looks up vectors for token ids."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.embedding(x).mean(1))


def test_integers_are_for_embeddings_and_numbers_to_other_networks(refused, tmp_path, features):
    tokens = np.random.default_rng(0).integers(0, 9, (60, 5))
    labels = (tokens == 4).any(1)
    ensemble = EDST.fit(Words, (tokens, labels), output=tmp_path, lr=0.5, epochs=30, quiet=True)
    assert (ensemble.predict(tokens) == labels).mean() > 0.85
    again = ft.load(tmp_path, Words)
    assert np.array_equal(again.predict_proba(tokens.tolist()), ensemble.predict_proba(tokens))
    np.testing.assert_allclose(again.compile().predict_proba(tokens), again.predict_proba(tokens))
    refused("was trained on integers", again.predict, tokens / 2)
    refused("can't look up all integers from 9. to 98", again.predict, tokens + 90)
    too_many = tokens + 1, labels
    refused("can't look up all integers", EDST.fit, Words, too_many, epochs=3, quiet=True)
    x, y = (features[0] * 10).round(), features[1]
    integers = EDST.fit("mlp-8", (x.long(), y), **SMALL)
    floats = EDST.fit("mlp-8", (x, y), **SMALL)
    assert np.array_equal(integers.predict_proba(x.long()), floats.predict_proba(x))


# ---- validation data


def test_own_validation_data_is_what_is_validated_on(features, tmp_path):
    x, y = features
    other = (x[:30] + 1, y[:30])
    ensemble = ft.Dense().fit("mlp-8", features, validation_data=other, output=tmp_path, **SMALL)
    (ticket,) = ensemble.tickets
    probs = ensemble.predict_proba(other[0])
    assert ticket.info["validation_accuracy"] == (probs.argmax(1) == other[1].numpy()).mean()
    loss = -np.log(probs[np.arange(30), other[1]]).mean()
    assert ticket.info["validation_loss"] == pytest.approx(loss, rel=1e-5)
    plain = ft.Dense().fit("mlp-8", features, validation=0.0, **SMALL)  # all of it is trained on
    assert torch.equal(ticket.state["fc1.weight"], plain.tickets[0].state["fc1.weight"])


def test_own_validation_data_is_of_any_kind_and_a_run_tied_to_it(refused, features, tmp_path):
    x, y = features
    np.savez(tmp_path / "v.npz", x=x.numpy()[:20], y=y.numpy()[:20])
    kinds: list[Any] = [
        (x[:20], y[:20]), Split(x[:20], y[:20]), TensorDataset(x[:20], y[:20]),
        StackDataset(x[:20], y[:20].tolist()), str(tmp_path / "v.npz"),
    ]  # fmt: skip
    runs = [ft.Dense().fit("mlp-8", features, validation_data=kind, **SMALL) for kind in kinds]
    assert len({run.tickets[0].info["validation_loss"] for run in runs}) == 1
    settings = {**SMALL, "output": tmp_path / "run"}
    for _ in range(2):
        ft.Dense().fit("mlp-8", features, validation_data=kinds[0], **settings)
    for other in ((x[:30], y[:30]), None):
        words, settings["validation_data"] = r"other settings \(.*validation_data: arrays-", other
        refused(words, ft.Dense().fit, "mlp-8", features, **settings)


# ---- settings


def test_a_seed_trains_the_same_without_a_word_or_a_file(features, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    method = replace(EDST, interval=None)
    first, again, other = (
        method.fit("mlp-8", features, seed=seed, **SMALL).tickets[0].state["fc1.weight"]
        for seed in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_progress_says_where_it_is_and_goes_to_stderr(features, capfd):
    EDST.fit("mlp-8", features, **{**SMALL, "quiet": False})
    out, err = capfd.readouterr()
    assert out == ""
    assert "[100%] run 1 refine 2" in err
    assert "ticket 2 of 2 collected" in err
    assert "escape: 80% of the active weights pruned, as many grown" in err


def no_data():
    raise AssertionError("a price needs no data")


def test_some_samples_only_are_trained_on_and_paid_for(refused, features):
    whole = EDST.fit("mlp-8", features, **SMALL)
    some = EDST.fit("mlp-8", features, **SMALL, train_samples=len(features[1]) // 2)
    steps = [ensemble.tickets[-1].info["step"] for ensemble in (whole, some)]
    assert 0.4 <= steps[1] / steps[0] <= 0.6
    config = Config(dataset="fashion-mini", model="mlp-8", epochs=2.0, validation=0.5)
    spec = ft.data.get_spec("fashion-mini")
    settings = {size: replace(config, train_samples=size) for size in (None, 2500, 9000)}
    jobs = {size: Job(each.resolved(spec), spec, no_data) for size, each in settings.items()}
    prices = {size: job.price().flops for size, job in jobs.items()}
    assert prices[2500] == pytest.approx(prices[None] / 2, rel=0.01)
    assert prices[9000] == prices[None]  # there are 5,000, as training will say
    words = "train_samples must be at least 1, not 0"
    refused(words, EDST.fit, "mlp-8", features, **SMALL, train_samples=0)


# ---- explorations


@pytest.mark.parametrize(("options", "least"), [({}, 10), ({"interval": 200}, 0)])
def test_a_few_hundred_rows_explore_or_one_line_says_no(options, least, monkeypatch, capsys):
    found = []
    monkeypatch.setattr(ft.Sparsifier, "explore", lambda self, rate: found.append(self.steps))
    x, y = torch.randn(500, 6), torch.arange(500) % 3
    ft.DST(tickets=1, sparsity=0.5, **options).fit("mlp-8", (x, y), quiet=True)
    assert len(found) == least
    said = capsys.readouterr().err
    assert said == "" if least else said.startswith("warning: a run of this plan explores its")


def generators():
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    return torch.get_rng_state().tolist(), random.getstate(), numpy_state


@pytest.mark.parametrize("model", ["mlp-8", Net, Net()], ids=["name", "factory", "network"])
def test_the_generators_of_the_process_are_left_alone(features, model):
    torch.manual_seed(1)
    before = generators()
    for data, workers in ((Noisy(features), 0), (Noisy(features), 1), (features, 0)):
        ensemble = ft.DenseEnsemble(tickets=2).fit(model, data, workers=workers, **SMALL)
        ensemble.predict(Noisy(features))
        assert generators() == before


# ---- mistakes

NET = Net()
ZEROS, SIX = torch.zeros(4, 2), torch.zeros(4, 6)


def test_what_can_not_be_trained_is_one_line(refused, features):
    for change, message in (
        ({"model": 3}, "model must be a name"),
        ({"model": [NET]}, "model must be a name"),
        ({"model": "mpl-8"}, "did you mean 'mlp-8'"),
        ({"model": lambda: NET}, "same network each time"),
        ({"train_data": (ZEROS[:0], torch.zeros(0, dtype=torch.int64))}, "empty"),
        ({"train_data": Split(ZEROS, torch.tensor([0, 1, -1, 0]))}, "labels from -1 to 1"),
        ({"train_data": "fashion-mimi"}, "did you mean 'fashion-mini'"),
        ({"train_data": "fashion-mini", "image_size": 14}, "has a fixed size"),
        ({"validation_data": (SIX[:, 1:], [0, 1, 2, 0])}, r"data have .* shape \(5,\), the train"),
        ({"validation_data": (SIX, [0, 1, 2, 3])}, "validation data has labels from 0 to 3, but"),
        ({"validation_data": (SIX, [0, 1, 2, 0]), "validation": 0.2}, "leave out either"),
        ({"validation_data": "nowhere.npz"}, r"no validation data at nowhere\.npz"),
        ({"batchsize": 3}, "did you mean 'batch_size'"),
        ({"dataset": "x"}, "unknown setting"),
        ({"options": "x"}, "unknown setting"),
    ):
        refused(message, DST.fit, **{"model": "mlp-8", "train_data": features, **SMALL, **change})
