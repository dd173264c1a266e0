from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import freetickets as ft
from freetickets.data import LazySplit, Split
from freetickets.errors import FreeTicketsError
from freetickets.storage import DamagedFileError

Features = tuple[Tensor, Tensor]

SMALL = {"batch_size": 10, "epochs": 4, "quiet": True}


@pytest.fixture(scope="module")
def ensemble(features: Features) -> ft.Ensemble:
    options = {"dropout": 0.5}  # which a prediction must not draw
    return ft.EDST(tickets=3, interval=3).fit("mlp-8", features, model_options=options, **SMALL)


def own_network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def small_ticket(network: nn.Module | None = None, **info: Any) -> ft.Ticket:
    about = {
        "classes": ["a", "b", "c"],
        "input_shape": [6],
        "mean": [],
        "std": [],
        "combine": "probabilities",
    }
    return ft.Ticket.of((network or own_network()).state_dict(), {}, {**about, **info})


# ---- predictions


def test_members_predict_what_their_networks_do(ensemble: ft.Ensemble, features: Features) -> None:
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


def test_the_ensembles_probabilities_are_the_mean_and_add_up_to_one(
    ensemble: ft.Ensemble, features: Features
) -> None:
    probs = ensemble.predict_proba(features[0])
    np.testing.assert_allclose(probs, ensemble.member_proba(features[0]).mean(0), atol=1e-12)
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-12)
    assert np.array_equal(ensemble.predict(features[0]), probs.argmax(-1))
    np.testing.assert_allclose(
        np.exp(ensemble.member_log_proba(features[0])), ensemble.member_proba(features[0])
    )


def test_the_rule_in_the_tickets_combines_them(ensemble: ft.Ensemble, features: Features) -> None:
    tickets = [
        ft.Ticket(t.state, t.topology, {**t.info, "combine": "logits"}) for t in ensemble.tickets
    ]
    logs = ensemble.member_log_proba(features[0]).mean(0)
    expected = np.exp(logs) / np.exp(logs).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        ft.Ensemble(tickets).predict_proba(features[0]), expected, atol=1e-12
    )


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_the_size_of_a_batch_does_not_matter(
    ensemble: ft.Ensemble, features: Features, batch_size: int
) -> None:
    np.testing.assert_allclose(
        ensemble.member_proba(features[0], batch_size),
        ensemble.member_proba(features[0]),
        atol=1e-6,
    )


def test_arrays_lists_tensors_and_splits_are_alike(
    ensemble: ft.Ensemble, features: Features
) -> None:
    x, y = features
    for kind in (x.numpy(), x.double(), x.tolist(), Split(x, y)):
        assert np.array_equal(ensemble.predict_proba(kind), ensemble.predict_proba(x))


def test_inputs_of_another_shape_are_one_line(ensemble: ft.Ensemble) -> None:
    for shape in [(4, 7), (4, 6, 1, 1), (4, 1, 6), (6,)]:
        with pytest.raises(FreeTicketsError, match=r"takes inputs of shape \(N, 6\)"):
            ensemble.predict_proba(torch.zeros(shape))
    with pytest.raises(FreeTicketsError, match=r"not \(N, 3, 8, 8\)"):
        ensemble.predict_proba(
            LazySplit((Path("x"),), torch.zeros(1, dtype=torch.int64), (3, 8, 8))
        )


def test_no_inputs_are_one_line(ensemble: ft.Ensemble) -> None:
    with pytest.raises(FreeTicketsError, match="0 samples"):
        ensemble.predict_proba(torch.zeros(0, 6))


def test_bytes_for_an_ensemble_of_floats_are_refused_not_scaled_in_silence(
    ensemble: ft.Ensemble,
) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    images = ft.Ensemble(
        [small_ticket(network, input_shape=[1, 4, 4])],
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 3)),
    )
    with pytest.raises(FreeTicketsError, match="trained on floats: give floats"):
        images.predict_proba(torch.zeros(2, 1, 4, 4, dtype=torch.uint8))


def test_features_of_an_npz_data_set_are_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)).astype(np.float32), np.arange(40) % 2
    np.savez(tmp_path / "f.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    trained = ft.Dense().fit("mlp-4", str(tmp_path / "f.npz"), **SMALL)
    found = trained.predict_proba(x)
    assert found.shape == (40, 2)
    assert np.array_equal(found, trained.predict_proba(x.reshape(40, 5, 1, 1)))


def test_predicting_leaves_the_generator_and_the_tickets_alone(
    ensemble: ft.Ensemble, features: Features, tmp_path: Path
) -> None:
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
def test_total_is_aleatoric_and_epistemic_and_none_is_negative(
    seed: int, members: int, classes: int, spread: float
) -> None:
    logits = spread * torch.randn(
        members, 6, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    unsure = ft.Uncertainty.of(logits.log_softmax(-1).numpy())
    np.testing.assert_allclose(unsure.total, unsure.aleatoric + unsure.epistemic, atol=1e-9)
    assert (unsure.epistemic >= 0).all()
    assert (unsure.aleatoric >= 0).all()
    assert (unsure.total <= np.log(classes) + 1e-9).all()
    assert (unsure.epistemic <= np.log(members) + 1e-9).all()


def test_members_that_agree_leave_no_epistemic_uncertainty() -> None:
    logs = np.log(np.tile([[0.7, 0.2, 0.1]], (4, 1, 1)))
    unsure = ft.Uncertainty.of(logs)
    assert unsure.epistemic[0] == pytest.approx(0, abs=1e-12)
    assert unsure.total[0] == pytest.approx(
        -(0.7 * np.log(0.7) + 0.2 * np.log(0.2) + 0.1 * np.log(0.1))
    )


def test_members_that_are_certain_of_different_classes_are_epistemic_only() -> None:
    logs = np.array([[[0.0, -np.inf]], [[-np.inf, 0.0]]])
    unsure = ft.Uncertainty.of(logs)
    assert unsure.aleatoric.tolist() == [0]
    assert unsure.total[0] == pytest.approx(np.log(2))


def test_an_ensembles_uncertainty_is_that_of_its_members(
    ensemble: ft.Ensemble, features: Features
) -> None:
    found = ensemble.uncertainty(features[0])
    expected = ft.Uncertainty.of(ensemble.member_log_proba(features[0]))
    assert np.array_equal(found.epistemic, expected.epistemic)
    assert found.total.shape == (60,)


# ---- saving and loading


def test_what_is_saved_predicts_the_same_after_loading(
    ensemble: ft.Ensemble, features: Features, tmp_path: Path
) -> None:
    ensemble.save(tmp_path)
    loaded = ft.load(tmp_path)
    assert len(loaded) == 3
    assert np.array_equal(loaded.member_proba(features[0]), ensemble.member_proba(features[0]))
    assert loaded.classes == ("0", "1", "2")


def test_some_of_the_members_are_an_ensemble_too(
    ensemble: ft.Ensemble, features: Features, tmp_path: Path
) -> None:
    ensemble.save(tmp_path)
    part = ft.Ensemble([ensemble.tickets[2], ensemble.tickets[0]])
    part.save(tmp_path)  # in place of the three
    loaded = ft.load(tmp_path)
    assert np.array_equal(
        loaded.member_proba(features[0]), ensemble.member_proba(features[0])[[2, 0]]
    )
    assert ensemble.tickets[0].info["tickets"] == 3  # nothing was changed in memory


def test_a_network_of_ones_own_needs_its_factory_again(features: Features, tmp_path: Path) -> None:
    trained = ft.EDST(tickets=2, interval=3).fit(own_network, features, **SMALL)
    trained.save(tmp_path)
    with pytest.raises(FreeTicketsError, match=r"a Python object.*pass the same factory as model="):
        ft.load(tmp_path)
    loaded = ft.load(tmp_path, own_network)
    assert np.array_equal(loaded.predict_proba(features[0]), trained.predict_proba(features[0]))


def test_a_name_in_a_ticket_never_makes_code_run(tmp_path: Path) -> None:
    ft.Ensemble([small_ticket(model="os:getcwd", model_options={})], own_network).save(tmp_path)
    with pytest.raises(FreeTicketsError, match=r"your own \(os:getcwd\): pass the same factory"):
        ft.load(tmp_path)


def test_a_factory_that_always_returns_the_same_network_is_refused(
    ensemble: ft.Ensemble,
) -> None:
    network = ft.models.create_model("mlp-8", (6,), 3)
    with pytest.raises(FreeTicketsError, match="a new network each time"):
        ft.Ensemble(ensemble.tickets, lambda: network)


def test_a_network_that_does_not_fit_is_one_line(ensemble: ft.Ensemble) -> None:
    with pytest.raises(FreeTicketsError, match="does not fit the ticket") as caught:
        ft.Ensemble(ensemble.tickets, own_network)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_no_tickets_are_no_ensemble(tmp_path: Path) -> None:
    with pytest.raises(FreeTicketsError, match="at least one ticket"):
        ft.Ensemble([])
    with pytest.raises(FreeTicketsError, match="no tickets in"):
        ft.load(tmp_path)


def test_a_run_that_is_not_done_is_loaded_only_on_request(
    ensemble: ft.Ensemble, tmp_path: Path
) -> None:
    ensemble.save(tmp_path)
    (tmp_path / "tickets" / "03.safetensors").unlink()
    with pytest.raises(FreeTicketsError, match="has 2 of 3 tickets: the run is still training"):
        ft.load(tmp_path)
    assert len(ft.load(tmp_path, partial=True)) == 2


def test_a_damaged_ticket_is_named_even_when_the_others_are_whole(
    ensemble: ft.Ensemble, tmp_path: Path
) -> None:
    ensemble.save(tmp_path)
    file = tmp_path / "tickets" / "02.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    for partial in (False, True):
        with pytest.raises(DamagedFileError, match=r"02\.safetensors"):
            ft.load(tmp_path, partial=partial)


@pytest.mark.parametrize("device", ["cuda", "warp"])
def test_a_device_that_is_not_there_is_one_line(ensemble: ft.Ensemble, device: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(FreeTicketsError, match=f"can't use --device {device}"):
        ft.Ensemble(ensemble.tickets, device=device)


def test_public_names_are_all_there() -> None:
    for name in ft.__all__:
        assert getattr(ft, name) is not None
    missing: Callable[[], Any] = lambda: ft.Nothing  # noqa: E731
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        missing()
