from __future__ import annotations

from pathlib import Path

import pytest
import torch

import freetickets as ft
from freetickets.calibration import Temperature
from freetickets.evaluation.networks import digest_tickets, layer_densities


def test_the_digest_changes_with_any_ticket_and_with_the_temperature(
    run_folder: Path, tmp_path: Path
) -> None:
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


def test_densities_are_those_of_the_topologies_and_1_without_one(run_folder: Path) -> None:
    tickets = ft.load(run_folder).tickets
    rows = layer_densities(tickets)
    weights = {name: w for name, w in tickets[0].state.items() if w.dim() >= 2}
    assert [row["name"] for row in rows] == list(weights)
    assert any(min(row["density"]) < 1 for row in rows)
    for row in rows:
        assert row["shape"] == list(weights[row["name"]].shape)
        for ticket, density in zip(tickets, row["density"], strict=True):
            mask = ticket.topology.get(row["name"])
            if mask is not None:
                active = torch.count_nonzero(mask).item() / mask.numel()
                assert density == pytest.approx(active)
                assert torch.count_nonzero(ticket.state[row["name"]]) <= mask.sum()
            else:
                assert density == 1


def test_a_dense_ensemble_has_no_densities(features: tuple[torch.Tensor, torch.Tensor]) -> None:
    ensemble = ft.Dense().fit("mlp-8", features, epochs=1, quiet=True)
    assert layer_densities(ensemble.tickets) == []
