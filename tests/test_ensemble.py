import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from torch import nn

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.data import LazySplit, Split
from freetickets.errors import DamagedFileError
from freetickets.kernels.library import available
from freetickets.metrics import nll
from freetickets.metrics.predictive import RULES
from freetickets.seal import seal_values
from freetickets.selection import select_members

from .kernels.zoo.checks import compiled_for_good, make_sparse

SMALL = {"batch_size": 10, "epochs": 4, "quiet": True}
SCOPES = ["ensemble", "members"]


@pytest.fixture(scope="module")
def ensemble(features):
    options = {"dropout": 0.5}  # which a prediction must not draw
    return ft.EDST(tickets=3, interval=3).fit("mlp-8", features, model_options=options, **SMALL)


@pytest.fixture(scope="module")
def sure(features):
    """Members that have learned their data too well."""
    settings = {**SMALL, "epochs": 20, "lr": 0.1}
    return ft.DenseEnsemble(tickets=3).fit("mlp-8", features, **settings)


@pytest.fixture(scope="module")
def held_out():
    """Samples like those of the training, but harder."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(90) % 3
    return torch.randn(90, 6, generator=generator) + torch.eye(6)[labels], labels


def by_rule(ensemble, combine):
    """The same members, combined by that rule."""
    said = [(t.state, t.topology, {**t.info, "combine": combine}) for t in ensemble.tickets]
    return ft.Ensemble([ft.Ticket(*each) for each in said])


def loss(ensemble, data):
    return nll(np.log(ensemble.predict_proba(data[0]))[None], data[1].numpy())


def own_network():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def small_ticket(network=None, **info):
    about = {"classes": ["a", "b", "c"], "input_shape": [6], "mean": [], "std": []}
    about["combine"] = "probabilities"
    return ft.Ticket.of((network or own_network()).state_dict(), {}, {**about, **info})


def test_members_predict_what_their_networks_do_and_the_ensemble_their_mean(ensemble, features):
    x = features[0]
    found, probs = ensemble.member_proba(x), ensemble.predict_proba(x)
    assert (found.shape, found.dtype) == ((3, 60, 3), np.float64)
    for member, ticket in zip(found, ensemble.tickets, strict=True):
        network = ft.models.create_model("mlp-8", (6,), 3)
        network.load_state_dict(ticket.state)
        with torch.no_grad():
            expected = network.eval()(x).double().softmax(-1)
        np.testing.assert_allclose(member, expected, atol=1e-12)
    np.testing.assert_allclose(probs, found.mean(0), atol=1e-12)
    assert np.array_equal(ensemble.predict(x), probs.argmax(-1))
    logs = ensemble.member_log_proba(x)
    by_logits = by_rule(ensemble, "logits").predict_proba(x)
    np.testing.assert_allclose(by_logits, softmax(logs.mean(0), axis=-1), atol=1e-12)


def test_an_ensemble_says_what_it_is(ensemble, features):
    told = repr(ensemble.calibrate(*features))
    assert told.startswith("Ensemble(3 members, edst, mlp-8, arrays-")
    assert told.endswith(", sparsity 0.806, temperature by ensemble)")
    by_hand = ft.Ticket(nn.Linear(2, 2).state_dict(), {}, {})
    assert repr(ft.Ensemble([by_hand], lambda: nn.Linear(2, 2))) == "Ensemble(1 member)"


def test_neither_the_kind_of_inputs_nor_the_size_of_a_batch_matters_but_their_shape_does(
    refused, ensemble, features
):
    expected = ensemble.predict_proba(features[0])
    for kind in (features[0].tolist(), Split(*features)):
        assert np.array_equal(ensemble.predict_proba(kind), expected)
    for size in (1, 7, 1000):
        np.testing.assert_allclose(ensemble.predict_proba(features[0], size), expected, atol=1e-6)
    for shape in [(4, 7), (4, 6, 1, 1), (4, 1, 6), (6,)]:
        refused(r"takes inputs of shape \(N, 6\)", ensemble.predict_proba, torch.zeros(shape))
    photo = LazySplit((Path("x"),), torch.zeros(1).long(), (3, 8, 8))
    refused(r"not \(N, 3, 8, 8\)", ensemble.predict_proba, photo)
    refused("0 samples", ensemble.predict_proba, torch.zeros(0, 6))

    def build():
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    images = ft.Ensemble([small_ticket(build(), input_shape=[1, 4, 4])], build)
    black = torch.zeros(2, 1, 4, 4, dtype=torch.uint8)
    refused("trained on floats: give floats", images.predict_proba, black)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 9), st.floats(0, 300))
def test_at_a_temperature_the_total_is_still_aleatoric_and_epistemic(
    seed, members, classes, spread
):
    logits = spread * np.random.default_rng(seed).normal(size=(members, 6, classes))
    logs = log_softmax(logits, axis=-1)
    unsure = ft.Uncertainty.of(logs)
    warmer = ft.Uncertainty.of(logs, log_softmax(logits.mean(0) / 1000, axis=-1))
    np.testing.assert_allclose(warmer.total, warmer.aleatoric + warmer.epistemic, atol=1e-9)
    assert min(warmer.epistemic.min(), warmer.aleatoric.min()) >= 0
    shares = unsure.epistemic * warmer.total, warmer.epistemic * unsure.total
    np.testing.assert_allclose(*shares, atol=1e-9)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("combine", RULES)
def test_calibration_divides_what_is_said_and_betters_it_where_it_was_fitted(
    sure, held_out, scope, combine
):
    raw, x = by_rule(sure, combine), held_out[0]
    calibrated = raw.calibrate(*held_out, scope)
    assert loss(calibrated, held_out) < loss(raw, held_out)
    assert raw.temperature is None
    values = np.array(calibrated.temperature.values)
    logs = raw.member_log_proba(x)
    if scope == "members":
        logs = log_softmax(logs / values[:, None, None], axis=-1)
    np.testing.assert_allclose(calibrated.member_log_proba(x), logs, atol=1e-12)
    joint = np.exp(logs).mean(0) if combine == "probabilities" else softmax(logs.mean(0), axis=-1)
    if scope == "ensemble":
        joint = softmax(np.log(joint) / values[0], axis=-1)
    np.testing.assert_allclose(calibrated.predict_proba(x), joint, atol=1e-12)
    assert np.array_equal(calibrated.predict(x), joint.argmax(-1))


@pytest.mark.parametrize("scope", SCOPES)
def test_the_uncertainty_after_calibration_is_that_of_what_is_predicted(sure, held_out, scope):
    calibrated = sure.calibrate(*held_out, scope)
    unsure, before = calibrated.uncertainty(held_out[0]), sure.uncertainty(held_out[0])
    expected = ft.Uncertainty.of(sure.member_log_proba(held_out[0]))
    assert np.array_equal(before.epistemic, expected.epistemic)
    probs = calibrated.predict_proba(held_out[0])
    np.testing.assert_allclose(unsure.total, -(probs * np.log(probs)).sum(-1), atol=1e-12)
    np.testing.assert_allclose(unsure.total, unsure.aleatoric + unsure.epistemic, atol=1e-12)
    assert unsure.total.mean() > before.total.mean()  # on average, as it was too sure
    if scope == "ensemble":
        shares = before.epistemic / before.total
        np.testing.assert_allclose(unsure.epistemic, shares * unsure.total, atol=1e-12)


@pytest.mark.parametrize("scope", SCOPES)
def test_calibrating_again_forgets_the_first_time(sure, features, held_out, scope):
    x, y = held_out
    fresh = sure.calibrate(x, y, scope).temperature
    for before, labels in zip(SCOPES, (y.tolist(), y.to(torch.uint8)), strict=True):
        again = sure.calibrate(*features, before).calibrate(Split(x, y), labels, scope)
        assert again.temperature == fresh
        plain = again.with_temperature(None).predict_proba(features[0])
        assert np.array_equal(plain, sure.predict_proba(features[0]))


def test_a_temperature_that_can_not_be_meant_is_one_line(refused, sure, held_out):
    x, y = held_out
    for arguments, message in (
        ((None, None, "member"), "did you mean 'members'"),  # before anything is predicted
        ((x, y[:-1]), "90 predictions need 90 labels"),
        ((x, y + 0.5), "is not a class: labels are whole"),
    ):
        refused(message, sure.calibrate, *arguments)
    for temperature, message in (
        (Temperature((1.0, 2.0), "members"), "for 2 members, not for 3: fit them again"),
        (Temperature((2.0,), combine="logits"), r"mean of logits, but .* probabilities: fit it"),
    ):
        refused(message, sure.with_temperature, temperature)


@pytest.fixture(scope="module")
def pool(sure):
    """Three members that learned something, and two that did not."""
    network = ft.models.create_model("mlp-8", (6,), 3)
    blank = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    ignorant = ft.Ticket(blank, {}, sure.info)
    first, second, third = sure.tickets
    return ft.Ensemble([ignorant, second, ignorant, third, first])


@pytest.mark.parametrize("size", [1, 4, None])
@pytest.mark.parametrize("combine", RULES)
def test_what_is_chosen_are_the_members_that_the_definition_chooses(pool, held_out, size, combine):
    raw, (x, y) = by_rule(pool, combine), held_out
    expected = select_members(raw.member_log_proba(x), y.numpy(), size, combine=combine)
    chosen = raw.select(x, y, size)
    assert len(chosen) == len(chosen.tickets) == len(expected) == (size or len(expected))
    assert [id(ticket) for ticket in chosen.tickets] == [id(raw.tickets[i]) for i in expected]
    assert np.array_equal(chosen.member_proba(x), raw.member_proba(x)[expected])
    assert len(raw) == 5


def test_a_choice_forgets_the_temperature_of_the_pool_or_is_refused_in_one_line(
    refused, pool, features, held_out
):
    chosen, x = pool.select(*held_out, 2), features[0]
    from_calibrated = pool.calibrate(*features, "members").select(*held_out, 2)
    assert from_calibrated.temperature is None
    assert np.array_equal(from_calibrated.member_proba(x), chosen.member_proba(x))
    compiled = pool.compile().select(*held_out, 2)
    np.testing.assert_allclose(compiled.member_proba(x), chosen.member_proba(x), atol=1e-5)
    refused("6 members from a pool of 5", pool.select, None, None, 6)
    mimo = ft.MIMO(members=2).fit("mlp-8", features, **SMALL)
    refused("members of mimo: they share one network", mimo.select, *features, 1)


@pytest.mark.skipif(not available(), reason="the kernels are not built")
def test_members_are_compiled_unless_told_otherwise_and_say_the_same_in_any_thread(tmp_path):
    torch.manual_seed(0)
    made = [ft.models.create_model("wrn-10-1", (3, 8, 8), 10) for _ in range(2)]
    topology = make_sparse(made[0])
    for name, mask in topology.items():
        made[1].get_parameter(name).data *= mask
    about = {"classes": list("abcdefghij"), "input_shape": [3, 8, 8], "model": "wrn-10-1"}
    about |= {"mean": [0.5] * 3, "std": [0.2] * 3, "combine": "probabilities", "model_options": {}}
    tickets = [ft.Ticket.of(net.state_dict(), topology, about) for net in made]
    ft.Ensemble(tickets).save(tmp_path)
    fast, plain = ft.load(tmp_path), ft.load(tmp_path, compile=False)
    x = np.random.default_rng(0).integers(0, 256, (90, 3, 8, 8), dtype=np.uint8)
    wanted = plain.member_log_proba(x)
    with compiled_for_good(lambda _: "sparse"), ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda size: fast.member_log_proba(x, size), [40, 7, 1, 90] * 3):
            np.testing.assert_allclose(found, wanted, atol=1e-5)
        assert all(each._made is not None for each in fast._predictors)
        fast.networks[0].load_state_dict(made[1].state_dict())  # which is seen
        np.testing.assert_allclose(fast.member_log_proba(x)[0], wanted[1], atol=1e-5)
    assert plain._predictors == list(plain.networks)
    assert np.array_equal(plain.compile().predict(x), plain.predict(x))


@pytest.mark.parametrize("scope", SCOPES)
def test_a_temperature_is_saved_with_the_ensemble_and_comes_back_exactly(
    ensemble, held_out, tmp_path, scope
):
    calibrated, x = ensemble.calibrate(*held_out, scope), held_out[0]
    calibrated.save(tmp_path)
    loaded = ft.load(tmp_path)
    assert loaded.temperature == calibrated.temperature
    compiled = calibrated.compile().predict_proba(x)
    np.testing.assert_allclose(compiled, calibrated.predict_proba(x), atol=1e-5)
    assert np.array_equal(loaded.predict_proba(x), calibrated.predict_proba(x))
    assert np.array_equal(loaded.uncertainty(x).total, calibrated.uncertainty(x).total)
    ensemble.save(tmp_path)  # as it was trained, in place of the other
    assert ft.load(tmp_path).temperature is None


def test_a_damaged_calibration_is_one_line_that_names_it(refused, ensemble, tmp_path):
    ensemble.save(tmp_path)
    path, good = tmp_path / "calibration.json", Temperature((1.5,)).as_dict()
    sealed = json.dumps(seal_values(good))
    path.write_text(sealed)
    assert ft.load(tmp_path).temperature == Temperature((1.5,))
    changes = [{"scope": "members"}, {"combine": "logits"}, {"range": "x"}]
    changes += [{"values": values} for values in ([math.nan], [], ["1.5"])]
    wrong = ["", sealed[:-1], "\xff" + sealed, "[1.5]", sealed.replace("1.5", "1.6")]
    wrong += [json.dumps(good), *(json.dumps(seal_values({**good, **each})) for each in changes)]
    for content in wrong:
        path.write_text(content, encoding="latin-1")
        error = refused(r"n\.json can't be used \(", ft.load, tmp_path)
        assert isinstance(error, DamagedFileError)
        assert len(str(error)) < 400 + 2 * len(str(tmp_path))


def test_what_is_saved_predicts_the_same_after_loading_and_some_members_in_their_place(
    ensemble, features, tmp_path, digests
):
    ensemble.save(tmp_path)
    state, files = torch.get_rng_state(), digests(tmp_path)
    loaded = ft.load(tmp_path)
    assert (len(loaded), loaded.classes) == (3, ("0", "1", "2"))
    assert np.array_equal(loaded.member_proba(features[0]), ensemble.member_proba(features[0]))
    assert torch.equal(torch.get_rng_state(), state)
    ensemble.save(tmp_path)
    assert digests(tmp_path) == files  # predicting leaves the tickets alone
    part = ft.Ensemble([ensemble.tickets[2], ensemble.tickets[0]])
    part.save(tmp_path)  # in place of the three
    found = ft.load(tmp_path).member_proba(features[0])
    assert np.array_equal(found, ensemble.member_proba(features[0])[[2, 0]])
    assert ensemble.tickets[0].info["tickets"] == 3  # nothing was changed in memory


def test_what_is_no_ensemble_is_one_line_and_an_own_network_needs_its_factory_again(
    refused, ensemble, features, tmp_path
):
    network = ft.models.create_model("mlp-8", (6,), 3)
    for tickets, build, message in (
        ([], None, "at least one ticket"),
        (ensemble.tickets, lambda: network, "a new network each time"),
        (ensemble.tickets, own_network, "does not fit the ticket"),
        ([small_ticket(model="os:getcwd")], None, r"your own \(os:getcwd\): pass the same factory"),
    ):
        assert len(str(refused(message, ft.Ensemble, tickets, build))) < 300
    trained = ft.EDST(tickets=2, interval=3).fit(own_network, features, **SMALL)
    trained.save(tmp_path)
    refused(r"a Python object.*pass the same factory as model=", ft.load, tmp_path)
    loaded = ft.load(tmp_path, own_network)
    assert np.array_equal(loaded.predict_proba(features[0]), trained.predict_proba(features[0]))


def test_a_part_is_loaded_only_on_request(refused, ensemble, tmp_path):
    ensemble.save(tmp_path)
    (tmp_path / "tickets" / "03.safetensors").unlink()
    refused("has 2 of 3 tickets: the run is still training", ft.load, tmp_path)
    assert len(ft.load(tmp_path, partial=True)) == 2
