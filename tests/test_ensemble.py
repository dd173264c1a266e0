import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from torch import Tensor, nn

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.data import LazySplit, Split
from freetickets.errors import DamagedFileError, FreeTicketsError, UnknownNameError
from freetickets.metrics import nll
from freetickets.metrics.predictive import RULES
from freetickets.seal import seal_values
from freetickets.selection import select_members

Features = tuple[Tensor, Tensor]

SMALL = {"batch_size": 10, "epochs": 4, "quiet": True}


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
    return ft.Ensemble(
        [ft.Ticket(t.state, t.topology, {**t.info, "combine": combine}) for t in ensemble.tickets]
    )


def loss(ensemble, data):
    return nll(np.log(ensemble.predict_proba(data[0]))[None], data[1].numpy())


def own_network():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def small_ticket(network=None, **info):
    about = {
        "classes": ["a", "b", "c"],
        "input_shape": [6],
        "mean": [],
        "std": [],
        "combine": "probabilities",
    }
    return ft.Ticket.of((network or own_network()).state_dict(), {}, {**about, **info})


# ---- predictions


def test_members_predict_what_their_networks_do(ensemble, features):
    x = features[0]
    found = ensemble.member_proba(x)
    assert found.shape == (3, 60, 3)
    assert found.dtype == np.float64
    for member, ticket in zip(found, ensemble.tickets, strict=True):
        network = ft.models.create_model("mlp-8", (6,), 3)
        network.load_state_dict(ticket.state)
        with torch.no_grad():
            expected = network.eval()(x).double().softmax(-1)
        np.testing.assert_allclose(member, expected, atol=1e-12)


def test_an_ensemble_says_what_it_is(ensemble, features):
    told = repr(ensemble)
    assert told.startswith("Ensemble(3 members, edst, mlp-8, arrays-")
    assert "sparsity 0.8" in told
    assert repr(ft.Ensemble(ensemble.tickets[:1])).startswith("Ensemble(1 member, ")
    assert "temperature by ensemble" in repr(ensemble.calibrate(*features))
    by_hand = ft.Ticket(nn.Linear(2, 2).state_dict(), {}, {})
    assert repr(ft.Ensemble([by_hand], lambda: nn.Linear(2, 2))) == "Ensemble(1 member)"


def test_the_ensembles_probabilities_are_the_mean_and_add_up_to_one(ensemble, features):
    probs = ensemble.predict_proba(features[0])
    np.testing.assert_allclose(probs, ensemble.member_proba(features[0]).mean(0), atol=1e-12)
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-12)
    assert np.array_equal(ensemble.predict(features[0]), probs.argmax(-1))
    np.testing.assert_allclose(
        np.exp(ensemble.member_log_proba(features[0])), ensemble.member_proba(features[0])
    )


def test_the_rule_in_the_tickets_combines_them(ensemble, features):
    logs = ensemble.member_log_proba(features[0]).mean(0)
    expected = np.exp(logs) / np.exp(logs).sum(-1, keepdims=True)
    found = by_rule(ensemble, "logits").predict_proba(features[0])
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_the_size_of_a_batch_does_not_matter(ensemble, features, batch_size):
    np.testing.assert_allclose(
        ensemble.member_proba(features[0], batch_size),
        ensemble.member_proba(features[0]),
        atol=1e-6,
    )


def test_arrays_lists_tensors_and_splits_are_alike(ensemble, features):
    x, y = features
    for kind in (x.numpy(), x.double(), x.tolist(), Split(x, y)):
        assert np.array_equal(ensemble.predict_proba(kind), ensemble.predict_proba(x))


def test_inputs_of_another_shape_are_one_line(ensemble):
    for shape in [(4, 7), (4, 6, 1, 1), (4, 1, 6), (6,)]:
        with pytest.raises(FreeTicketsError, match=r"takes inputs of shape \(N, 6\)"):
            ensemble.predict_proba(torch.zeros(shape))
    with pytest.raises(FreeTicketsError, match=r"not \(N, 3, 8, 8\)"):
        ensemble.predict_proba(
            LazySplit((Path("x"),), torch.zeros(1, dtype=torch.int64), (3, 8, 8))
        )
    with pytest.raises(FreeTicketsError, match="0 samples"):
        ensemble.predict_proba(torch.zeros(0, 6))


def test_bytes_for_an_ensemble_of_floats_are_refused_not_scaled_in_silence(ensemble):
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    images = ft.Ensemble(
        [small_ticket(network, input_shape=[1, 4, 4])],
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)),
    )
    with pytest.raises(FreeTicketsError, match="trained on floats: give floats"):
        images.predict_proba(torch.zeros(2, 1, 4, 4, dtype=torch.uint8))


def test_features_of_an_npz_data_set_are_rows(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)).astype(np.float32), np.arange(40) % 2
    np.savez(tmp_path / "f.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    trained = ft.Dense().fit("mlp-4", str(tmp_path / "f.npz"), **SMALL)
    found = trained.predict_proba(x)
    assert found.shape == (40, 2)
    assert np.array_equal(found, trained.predict_proba(x.reshape(40, 5, 1, 1)))


def test_predicting_leaves_the_generator_and_the_tickets_alone(ensemble, features, tmp_path):
    ensemble.save(tmp_path / "before")
    torch.manual_seed(0)
    state = torch.get_rng_state()
    again = ft.load(tmp_path / "before")
    again.predict_proba(features[0])
    assert torch.equal(torch.get_rng_state(), state)
    ensemble.save(tmp_path / "after")
    for number in (1, 2, 3):
        name = f"tickets/0{number}.safetensors"
        assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes()


# ---- uncertainty


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 9), st.floats(0, 300))
def test_total_is_aleatoric_and_epistemic_and_none_is_negative(seed, members, classes, spread):
    logits = spread * torch.randn(
        members, 6, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    logs = logits.log_softmax(-1)
    unsure = ft.Uncertainty.of(logs.numpy())
    warmer = ft.Uncertainty.of(logs.numpy(), (logits.mean(0) / 1000).log_softmax(-1).numpy())
    for each in (unsure, warmer):
        np.testing.assert_allclose(each.total, each.aleatoric + each.epistemic, atol=1e-9)
        assert (each.epistemic >= 0).all()
        assert (each.aleatoric >= 0).all()
        assert (each.total <= np.log(classes) + 1e-9).all()
    assert (unsure.epistemic <= np.log(members) + 1e-9).all()
    own = -(logs.exp() * logs).sum(-1).mean(0)
    np.testing.assert_allclose(unsure.aleatoric, own, atol=1e-9)
    np.testing.assert_allclose(
        unsure.epistemic * warmer.total, warmer.epistemic * unsure.total, atol=1e-9
    )


def test_members_that_are_certain_of_different_classes_are_epistemic_only():
    logs = np.array([[[0.0, -np.inf]], [[-np.inf, 0.0]]])
    unsure = ft.Uncertainty.of(logs)
    assert unsure.aleatoric.tolist() == [0]
    assert unsure.total[0] == pytest.approx(np.log(2))


def test_an_ensembles_uncertainty_is_that_of_its_members(ensemble, features):
    found = ensemble.uncertainty(features[0])
    expected = ft.Uncertainty.of(ensemble.member_log_proba(features[0]))
    assert np.array_equal(found.epistemic, expected.epistemic)
    assert found.total.shape == (60,)


# ---- calibration


@pytest.mark.parametrize("scope", ["ensemble", "members"])
@pytest.mark.parametrize("combine", RULES)
def test_calibration_is_never_worse_where_it_was_fitted(sure, features, held_out, scope, combine):
    raw = by_rule(sure, combine)
    for data in (features, held_out):
        calibrated = raw.calibrate(*data, scope)
        assert loss(calibrated, data) < loss(raw, data)
        assert raw.temperature is None


@pytest.mark.parametrize("combine", RULES)
def test_the_ensembles_temperature_divides_what_it_predicts(sure, held_out, combine):
    raw, x = by_rule(sure, combine), held_out[0]
    calibrated = raw.calibrate(*held_out)
    assert calibrated.temperature is not None
    (value,) = calibrated.temperature.values
    expected = softmax(np.log(raw.predict_proba(x)) / value, axis=-1)
    np.testing.assert_allclose(calibrated.predict_proba(x), expected, atol=1e-12)
    assert np.array_equal(calibrated.predict(x), raw.predict(x))
    assert np.array_equal(calibrated.member_proba(x), raw.member_proba(x))


@pytest.mark.parametrize("combine", RULES)
def test_the_members_temperatures_divide_what_they_say(sure, held_out, combine):
    raw, x = by_rule(sure, combine), held_out[0]
    calibrated = raw.calibrate(*held_out, scope="members")
    assert calibrated.temperature is not None
    values = np.array(calibrated.temperature.values)[:, None, None]
    logs = log_softmax(raw.member_log_proba(x) / values, axis=-1)
    np.testing.assert_allclose(calibrated.member_log_proba(x), logs, atol=1e-12)
    mean = np.exp(logs).mean(0) if combine == "probabilities" else softmax(logs.mean(0), axis=-1)
    np.testing.assert_allclose(calibrated.predict_proba(x), mean, atol=1e-12)
    assert np.array_equal(calibrated.predict(x), mean.argmax(-1))


@pytest.mark.parametrize("scope", ["ensemble", "members"])
def test_the_uncertainty_of_a_calibrated_ensemble_is_that_of_what_it_predicts(
    sure, held_out, scope
):
    calibrated = sure.calibrate(*held_out, scope)
    unsure, before = calibrated.uncertainty(held_out[0]), sure.uncertainty(held_out[0])
    probs = calibrated.predict_proba(held_out[0])
    np.testing.assert_allclose(unsure.total, -(probs * np.log(probs)).sum(-1), atol=1e-12)
    np.testing.assert_allclose(unsure.total, unsure.aleatoric + unsure.epistemic, atol=1e-12)
    assert unsure.total.mean() > before.total.mean()  # on average, as it was too sure
    if scope == "ensemble":
        shares = before.epistemic / before.total
        np.testing.assert_allclose(unsure.epistemic, shares * unsure.total, atol=1e-12)


@pytest.mark.parametrize("scope", ["ensemble", "members"])
def test_calibrating_again_forgets_the_first_time(sure, features, held_out, scope):
    fresh = sure.calibrate(*held_out, scope).temperature
    for before in ("ensemble", "members"):
        again = sure.calibrate(*features, before).calibrate(*held_out, scope)
        assert again.temperature == fresh
        plain = again.with_temperature(None).predict_proba(features[0])
        assert np.array_equal(plain, sure.predict_proba(features[0]))


def test_labels_may_be_of_any_kind(sure, held_out):
    x, y = held_out
    expected = sure.calibrate(x, y).temperature
    for labels in (y.numpy(), y.tolist(), y.to(torch.uint8)):
        assert sure.calibrate(Split(x, y), labels).temperature == expected


@pytest.mark.parametrize("scope", ["ensemble", "members"])
def test_a_compiled_ensemble_keeps_its_temperature(ensemble, held_out, scope):
    calibrated = ensemble.calibrate(*held_out, scope)
    found = calibrated.compile().predict_proba(held_out[0])
    np.testing.assert_allclose(found, calibrated.predict_proba(held_out[0]), atol=1e-5)


def test_a_temperature_that_can_not_be_meant_is_one_line(sure, held_out):
    x, y = held_out
    with pytest.raises(UnknownNameError, match="did you mean 'members'"):
        sure.calibrate(None, None, "member")  # before anything is predicted
    with pytest.raises(FreeTicketsError, match="90 predictions need 90 labels"):
        sure.calibrate(x, y[:-1])
    with pytest.raises(FreeTicketsError, match="is not a class: labels are whole"):
        sure.calibrate(x, y + 0.5)
    with pytest.raises(FreeTicketsError, match="for 2 members, not for 3: fit them again"):
        sure.with_temperature(Temperature((1.0, 2.0), "members"))
    with pytest.raises(FreeTicketsError, match=r"mean of logits, but .* probabilities: fit it"):
        sure.with_temperature(Temperature((2.0,), combine="logits"))


# ---- choosing members


@pytest.fixture(scope="module")
def pool(sure):
    """Three members that learned something, and two that did not."""
    network = ft.models.create_model("mlp-8", (6,), 3)
    blank = {name: torch.zeros_like(value) for name, value in network.state_dict().items()}
    ignorant = ft.Ticket(blank, {}, sure.info)
    first, second, third = sure.tickets
    return ft.Ensemble([ignorant, second, ignorant, third, first])


@pytest.mark.parametrize("size", [1, 2, 4, 5, None])
@pytest.mark.parametrize("combine", RULES)
def test_what_is_chosen_are_the_members_that_the_definition_chooses(pool, held_out, size, combine):
    raw, (x, y) = by_rule(pool, combine), held_out
    expected = select_members(raw.member_log_proba(x), y.numpy(), size, combine=combine)
    chosen = raw.select(x, y, size)
    assert len(chosen) == len(chosen.tickets) == len(expected) == (size or len(expected))
    assert [id(ticket) for ticket in chosen.tickets] == [id(raw.tickets[i]) for i in expected]
    assert np.array_equal(chosen.member_proba(x), raw.member_proba(x)[expected])
    assert len(raw) == 5


def test_a_choice_is_made_and_kept_without_the_temperature_of_the_pool(
    pool, features, held_out, tmp_path
):
    chosen = pool.select(*held_out, 2)
    from_calibrated = pool.calibrate(*features, "members").select(*held_out, 2)
    assert from_calibrated.temperature is None
    x = features[0]
    assert np.array_equal(from_calibrated.member_proba(x), chosen.member_proba(x))
    calibrated = chosen.calibrate(*held_out, "members")
    calibrated.save(tmp_path)
    loaded = ft.load(tmp_path)
    assert np.array_equal(loaded.member_proba(x), calibrated.member_proba(x))
    compiled = pool.compile().select(*held_out, 2)
    np.testing.assert_allclose(compiled.member_proba(x), chosen.member_proba(x), atol=1e-5)


def test_a_choice_that_can_not_be_made_is_one_line(pool, features):
    for size, message in ((0, "at least 1 member, not 0"), (6, "6 members from a pool of 5")):
        with pytest.raises(FreeTicketsError, match=message):
            pool.select(None, None, size)  # before anything is predicted
    mimo = ft.MIMO(members=2).fit("mlp-8", features, **SMALL)
    with pytest.raises(FreeTicketsError, match="members of mimo: they share one network"):
        mimo.select(*features, 1)


# ---- saving and loading


@pytest.mark.parametrize("scope", ["ensemble", "members"])
def test_a_temperature_is_saved_with_the_ensemble_and_comes_back_exactly(
    ensemble, held_out, tmp_path, scope
):
    calibrated = ensemble.calibrate(*held_out, scope)
    calibrated.save(tmp_path)
    loaded = ft.load(tmp_path)
    assert loaded.temperature == calibrated.temperature
    x = held_out[0]
    assert np.array_equal(loaded.predict_proba(x), calibrated.predict_proba(x))
    assert np.array_equal(loaded.uncertainty(x).total, calibrated.uncertainty(x).total)
    ensemble.save(tmp_path)  # as it was trained, in place of the other
    assert ft.load(tmp_path).temperature is None


GOOD = {"values": [1.5], "scope": "ensemble", "combine": "probabilities"}


SEALED = json.dumps(seal_values(GOOD))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        SEALED[:-1].encode(),
        b"\xff" + SEALED.encode(),
        b"[1.5]",
        SEALED.replace("1.5", "1.6").encode(),
        json.dumps(GOOD).encode(),
        *(
            json.dumps(seal_values({**GOOD, **changes})).encode()
            for changes in (
                {"values": [math.nan]},
                {"values": [-1.5]},
                {"values": []},
                {"values": ["1.5"]},
                {"values": [1.5, 1.5]},
                {"scope": "members"},
                {"scope": "forest"},
                {"combine": "logits"},
                {"range": "ensemble"},
            )
        ),
    ],
    ids=range(15),
)
def test_a_damaged_calibration_is_one_line_that_names_it(ensemble, tmp_path, content):
    ensemble.save(tmp_path)
    (tmp_path / "calibration.json").write_text(SEALED)
    assert ft.load(tmp_path).temperature == Temperature((1.5,))
    (tmp_path / "calibration.json").write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"calibration\.json can't be used \(") as caught:
        ft.load(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + 2 * len(str(tmp_path))


def test_what_is_saved_predicts_the_same_after_loading_and_some_members_in_their_place(
    ensemble, features, tmp_path
):
    ensemble.save(tmp_path)
    loaded = ft.load(tmp_path)
    assert (len(loaded), loaded.classes) == (3, ("0", "1", "2"))
    assert np.array_equal(loaded.member_proba(features[0]), ensemble.member_proba(features[0]))
    part = ft.Ensemble([ensemble.tickets[2], ensemble.tickets[0]])
    part.save(tmp_path)  # in place of the three
    loaded = ft.load(tmp_path)
    assert np.array_equal(
        loaded.member_proba(features[0]), ensemble.member_proba(features[0])[[2, 0]]
    )
    assert ensemble.tickets[0].info["tickets"] == 3  # nothing was changed in memory


def test_a_network_of_ones_own_needs_its_factory_again(features, tmp_path):
    trained = ft.EDST(tickets=2, interval=3).fit(own_network, features, **SMALL)
    trained.save(tmp_path)
    with pytest.raises(FreeTicketsError, match=r"a Python object.*pass the same factory as model="):
        ft.load(tmp_path)
    loaded = ft.load(tmp_path, own_network)
    assert np.array_equal(loaded.predict_proba(features[0]), trained.predict_proba(features[0]))


def test_a_name_in_a_ticket_never_makes_code_run(tmp_path):
    ft.Ensemble([small_ticket(model="os:getcwd", model_options={})], own_network).save(tmp_path)
    with pytest.raises(FreeTicketsError, match=r"your own \(os:getcwd\): pass the same factory"):
        ft.load(tmp_path)


def test_a_factory_that_always_returns_the_same_network_is_refused(ensemble):
    network = ft.models.create_model("mlp-8", (6,), 3)
    with pytest.raises(FreeTicketsError, match="a new network each time"):
        ft.Ensemble(ensemble.tickets, lambda: network)


def test_a_network_that_does_not_fit_is_one_line(ensemble):
    with pytest.raises(FreeTicketsError, match="does not fit the ticket") as caught:
        ft.Ensemble(ensemble.tickets, own_network)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_no_tickets_are_no_ensemble(tmp_path):
    with pytest.raises(FreeTicketsError, match="at least one ticket"):
        ft.Ensemble([])
    with pytest.raises(FreeTicketsError, match="no tickets in"):
        ft.load(tmp_path)


def test_what_can_not_be_written_is_one_line_and_a_part_is_loaded_only_on_request(
    ensemble, tmp_path
):
    ensemble.save(tmp_path)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FreeTicketsError, match="can't write"):
        ensemble.save(tmp_path / "file" / "mine")
    (tmp_path / "tickets" / "03.safetensors").unlink()
    with pytest.raises(FreeTicketsError, match="has 2 of 3 tickets: the run is still training"):
        ft.load(tmp_path)
    assert len(ft.load(tmp_path, partial=True)) == 2


def test_a_damaged_ticket_is_named_even_when_the_others_are_whole(ensemble, tmp_path):
    ensemble.save(tmp_path)
    file = tmp_path / "tickets" / "02.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    for partial in (False, True):
        with pytest.raises(DamagedFileError, match=r"02\.safetensors"):
            ft.load(tmp_path, partial=partial)


@pytest.mark.parametrize("device", ["cuda", "warp"])
def test_a_device_that_is_not_there_is_one_line(ensemble, device):
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(FreeTicketsError, match=f"can't use --device {device}"):
        ft.Ensemble(ensemble.tickets, device=device)
