"""The prune-and-fine-tune ensemble: one threshold, no matter which layer a weight is in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from freetickets.errors import FreeTicketsError
from freetickets.methods import PruneFineTune, Setting, get_recipe
from freetickets.training.session import Session


def test_one_threshold_decides_over_all_layers(
    features: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = []
    prune = Session.prune

    def watched(session: Session, sparsity: float, step: int) -> None:
        before.append({name: p.detach().clone() for name, p in session.network.named_parameters()})
        prune(session, sparsity, step)

    monkeypatch.setattr(Session, "prune", watched)
    method = PruneFineTune(tickets=2, sparsity=0.75)
    ensemble = method.fit("mlp-16-12", features, epochs=6, batch_size=10, quiet=True)
    assert len(before) == len(ensemble) == 2
    for dense, ticket in zip(before, ensemble.tickets, strict=True):
        kept = torch.cat([dense[name][mask].abs() for name, mask in ticket.topology.items()])
        gone = torch.cat([dense[name][~mask].abs() for name, mask in ticket.topology.items()])
        assert kept.min() >= gone.max()
        assert len(gone) == pytest.approx(0.75 * (len(gone) + len(kept)), abs=1)
        shares = {float(mask.float().mean()) for mask in ticket.topology.values()}
        assert len(shares) > 1, "layers keep different shares"
    first, second = (ticket.topology for ticket in ensemble.tickets)
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_each_network_is_trained_twice_as_long() -> None:
    plan = PruneFineTune().plan(Setting(get_recipe("cifar")))
    assert [run.epochs for run in plan.runs] == [500] * 3
    assert plan.trainings == 6
    fine_tuning = plan.runs[0].phases[1]
    assert fine_tuning.schedule[0].lr == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"tickets": 0}, "tickets"),
        ({"sparsity": 0.0}, "sparsity"),
        ({"finetune": 0.0}, "finetune"),
        ({"finetune_lr": 0.0}, "finetune_lr"),
    ],
)
def test_what_cannot_be_meant_is_one_line(options: dict[str, float], word: str) -> None:
    with pytest.raises(FreeTicketsError, match=word):
        PruneFineTune(**options)  # type: ignore[arg-type]
