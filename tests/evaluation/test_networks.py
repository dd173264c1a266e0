from itertools import permutations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.evaluation.networks import digest_tickets, feature_kl_by_layer, layer_densities


def test_the_digest_changes_with_any_ticket_and_with_the_temperature(run_folder, tmp_path):
    first = digest_tickets(run_folder)
    assert first == digest_tickets(run_folder)
    ensemble = ft.load(run_folder)
    ensemble.with_temperature(Temperature((2.0,))).save(tmp_path / "warm")
    warm = digest_tickets(tmp_path / "warm")
    ensemble.save(tmp_path / "warm")
    cold = digest_tickets(tmp_path / "warm")
    (tmp_path / "warm" / "tickets" / "02.safetensors").unlink()
    one = digest_tickets(tmp_path / "warm")
    assert len({first, warm, one}) == 3
    assert warm != cold
    assert digest_tickets(tmp_path / "nothing") is None


def test_densities_are_those_of_the_topologies_and_1_without_one(run_folder, features):
    dense = ft.Dense().fit("mlp-8", features, epochs=1, quiet=True)
    assert layer_densities(dense.tickets) == ()
    tickets = ft.load(run_folder).tickets
    rows = layer_densities(tickets)
    weights = {name: w for name, w in tickets[0].state.items() if w.dim() >= 2}
    assert [row.name for row in rows] == list(weights)
    assert any(min(row.density) < 1 for row in rows)
    for row in rows:
        assert row.shape == tuple(weights[row.name].shape)
        for ticket, density in zip(tickets, row.density, strict=True):
            mask = ticket.topology.get(row.name)
            if mask is not None:
                active = torch.count_nonzero(mask).item() / mask.numel()
                assert density == pytest.approx(active)
                assert torch.count_nonzero(ticket.state[row.name]) <= mask.sum()
            else:
                assert density == 1


SMALL = {"batch_size": 16, "epochs": 3, "lr": 0.1, "quiet": True}


@pytest.fixture(scope="module")
def ensemble(images_npz):
    method = ft.DST(tickets=3, interval=4)
    return method.fit("wrn-10-1", str(images_npz), **SMALL, augmentation="none")


def forward_by_hand(network, x):
    """A WRN-10-1 once more, without hooks."""
    found = {"conv1": network.conv1(x)}
    x = found["conv1"]
    for stage in ("block1", "block2", "block3"):
        block, name = getattr(network, stage)[0], f"{stage}.0"
        active = block.bn1(x)
        skip = x
        found[f"{name}.conv1"] = block.conv1(active)
        if block.shortcut is not None:
            skip = found[f"{name}.shortcut"] = block.shortcut(active)
        found[f"{name}.conv2"] = block.conv2(block.bn2(found[f"{name}.conv1"]))
        x = skip + found[f"{name}.conv2"]
    x = torch.relu(network.bn(x)).mean((2, 3))
    found["fc"] = network.fc(x)
    return found


def test_each_layer_is_the_mean_over_pairs_of_the_kl_over_channels(ensemble, test_set):
    found = feature_kl_by_layer(ensemble, test_set.subset(range(7)))
    x = (test_set.inputs[:7].float() / 255 - 0.5) / 0.25
    with torch.no_grad():
        maps = [forward_by_hand(network, x) for network in ensemble.networks]
    modules = ensemble.networks[0].named_modules()
    layers = [name for name, each in modules if isinstance(each, (nn.Conv2d, nn.Linear))]
    assert [row.layer for row in found] == layers
    assert set(layers) == set(maps[0])
    for row in found:
        logs = [log_softmax(each[row.layer].double().numpy(), axis=1) for each in maps]
        pairs = []
        for i, j in permutations(range(3), 2):
            pairs.append((np.exp(logs[i]) * (logs[i] - logs[j])).sum() / 7)
            assert row.kl_matrix[i][j] == pytest.approx(pairs[-1], rel=1e-4, abs=1e-9)
        assert row.kl == pytest.approx(np.mean(pairs), rel=1e-4)
        assert [row.kl_matrix[i][i] for i in range(3)] == [0, 0, 0]


def test_looking_leaves_no_trace_and_is_free_of_batches_and_compilation(ensemble, test_set):
    whole = feature_kl_by_layer(ensemble, test_set)
    parts = feature_kl_by_layer(ensemble.compile(), test_set, batch_size=4)
    for a, b in zip(whole, parts, strict=True):
        assert a.layer == b.layer
        np.testing.assert_allclose(a.kl_matrix, b.kl_matrix, rtol=1e-4, atol=1e-9)
    before = ensemble.member_log_proba(test_set)
    twins = ft.Ensemble([ensemble.tickets[0], ensemble.tickets[0]])
    assert all(row.kl < 1e-9 for row in feature_kl_by_layer(twins, test_set))
    feature_kl_by_layer(ensemble, test_set)
    assert np.array_equal(ensemble.member_log_proba(test_set), before)
    for network in (*ensemble.networks, *twins.networks):
        assert not any(module._forward_hooks for module in network.modules())


class InPlace(nn.Module):
    """Tokens, a layer that never runs, and an activation that overwrites what was computed."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 5)
        self.unused = nn.Linear(5, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        tokens = self.embed(x.reshape(len(x), 3, 2))
        return self.head(nn.functional.relu(tokens, inplace=True).mean(1))


def test_a_linear_layers_channels_come_last_and_are_read_before_an_activation_in_place(features):
    ensemble = ft.DenseEnsemble(tickets=2).fit(InPlace, features, **SMALL)
    x = features[0]
    found = feature_kl_by_layer(ensemble, ft.data.arrays(*features))
    assert [row.layer for row in found] == ["embed", "head"]
    with torch.no_grad():
        a, b = (network.embed(x.reshape(60, 3, 2)).double() for network in ensemble.networks)
    a, b = a.log_softmax(-1), b.log_softmax(-1)
    expected = (a.exp() * (a - b)).sum((1, 2)).mean()
    assert found[0].kl_matrix[0][1] == pytest.approx(float(expected), rel=1e-5)


def test_members_that_have_no_maps_of_their_own_are_refused(refused, images_npz, test_set):
    mimo = ft.MIMO(members=2)
    for method, reason in ((ft.Dense(), "has one"), (mimo, "mimo share the feature maps")):
        ensemble = method.fit("cnn-4", str(images_npz), **SMALL)
        refused(reason, feature_kl_by_layer, ensemble, test_set)
