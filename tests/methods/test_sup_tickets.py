"""Merged tickets: the mean of the cycles' weights, cut back layer by layer."""

import json

import pytest
import torch
from torch import nn

import freetickets as ft
from freetickets.methods import Setting, SupTickets, get_recipe
from freetickets.methods.sup_tickets import Merge

SETTINGS = {"batch_size": 12, "epochs": 8, "quiet": True, "backend": "masked"}


def network():
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def test_the_merge_is_the_running_mean_cut_back_layer_by_layer(features, monkeypatch):
    merges = []  # what each was given, and what it made
    happen = Merge.happen

    def spy(self, stage):
        own, line = stage.take(), happen(self, stage)
        merges.append((own, stage.recall("merged")))
        return line

    monkeypatch.setattr(Merge, "happen", spy)
    method = SupTickets(sparsity=0.5, cycles=3, cycling=0.6, interval=2)
    (ticket,) = method.fit(network, features, **SETTINGS).tickets
    assert len(merges) == 3
    mean = {}
    for count, (own, merged) in enumerate(merges, start=1):
        for name, mask in own.topology.items():
            before = mean.get(name, torch.zeros(()))
            expected = before + (own.state[name] - before) / count
            kept = int(mask.sum())
            least = expected.abs().flatten().topk(kept).values[-1]
            expected = torch.where(expected.abs() >= least, expected, 0.0)
            torch.testing.assert_close(merged.state[name], expected)
            assert int(merged.topology[name].sum()) == kept
            mean[name] = merged.state[name]
    torch.testing.assert_close(ticket.state["0.weight"], mean["0.weight"])
    assert not torch.equal(merges[0][0].topology["0.weight"], merges[2][0].topology["0.weight"])


def test_batch_norm_has_the_statistics_of_the_merged_network(features):
    x, _ = features
    method = SupTickets(sparsity=0.5, cycles=2, cycling=0.5, interval=2)
    # Dropout is off while they are estimated, as it is in prediction.
    build = lambda: nn.Sequential(nn.Dropout(0.5), *network())  # noqa: E731
    (ticket,) = method.fit(build, features, validation=0.0, **SETTINGS).tickets
    hidden = x @ ticket.state["1.weight"].T + ticket.state["1.bias"]
    torch.testing.assert_close(ticket.state["2.running_mean"], hidden.mean(0), atol=1e-4, rtol=1e-4)


def test_one_network_is_collected_and_priced_also_the_estimate_of_its_norms(features, tmp_path):
    plan = SupTickets().plan(Setting(get_recipe("cifar")))
    (run,) = plan.runs
    assert plan.tickets == 1
    assert [phase.name for phase in run.phases] == ["train", "cycle 1", "cycle 2", "cycle 3"]
    assert run.epochs == pytest.approx(250)
    cycle = run.phases[1]
    assert cycle.epochs == pytest.approx(25 / 3)
    assert [stretch.lr for stretch in cycle.schedule] == pytest.approx([0.001, 0.005])
    assert cycle.exploration is None
    assert [[e.event for e in phase.at_end] for phase in run.phases] == [
        ["escape"], ["merge", "escape"], ["merge", "escape"], ["merge", "collect"],
    ]  # fmt: skip
    costs = []
    for batches in (1, 3):
        output = tmp_path / str(batches)
        method = SupTickets(sparsity=0.5, cycles=2, cycling=0.5, interval=2, norm_batches=batches)
        method.fit("mlp-8", features, output=output, **SETTINGS)
        costs.append(json.loads((output / "ledger.json").read_text())["flops"])
    # Two batches of 12 samples forward: 6 x 8 weights, of which half are there, and 8 x 3.
    (ticket,) = ft.load(tmp_path / "1").tickets
    weights = {name: w != 0 for name, w in ticket.state.items() if w.dim() == 2}
    used = sum(int(mask.sum()) for mask in (weights | ticket.topology).values())
    assert costs[1] - costs[0] == pytest.approx(2 * 12 * 2 * used)
