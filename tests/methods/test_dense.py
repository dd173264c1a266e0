"""Methods of dense trainings against the formulas of their papers; one threshold for all layers."""

import math

import pytest
import torch

from freetickets.methods import FGE, Collect, PruneFineTune, Setting, Snapshot, Timeline, get_recipe
from freetickets.training.session import Session


@pytest.mark.parametrize(("tickets", "steps"), [(10, 60), (1, 4)])
def test_the_rate_of_snapshots_is_that_of_their_paper(tickets, steps):
    plan = Snapshot(tickets=tickets).plan(Setting(get_recipe("cifar")))
    timeline = Timeline(plan.runs[0], steps_per_epoch=steps)
    assert timeline.steps == 200 * steps
    assert [span.phase.at_end for span in timeline.spans] == [(Collect(),)] * tickets
    length = timeline.steps // tickets
    for t in range(1, timeline.steps + 1):
        wanted = 0.1 / 2 * (math.cos(math.pi * ((t - 1) % length) / length) + 1)
        assert timeline.lr(t) == pytest.approx(wanted, abs=1e-12)


def test_the_rate_of_fge_is_that_of_its_paper():
    # 200 epochs, 160 of them pretraining: 9 half cycles in 40 epochs of 45 steps.
    plan = FGE(tickets=5).plan(Setting(get_recipe("cifar")))
    timeline = Timeline(plan.runs[0], steps_per_epoch=45)
    pretraining, cycle = 160 * 45, 2 * 200
    high, low = 0.05, 0.0005
    for i in range(1, 9 * 200 + 1):
        t = ((i - 1) % cycle + 1) / cycle
        falling = (1 - 2 * t) * high + 2 * t * low
        rising = (2 - 2 * t) * low + (2 * t - 1) * high
        wanted = falling if t <= 0.5 else rising
        assert timeline.lr(pretraining + i) == pytest.approx(wanted, abs=1e-12)
    collected = [span.end for span in timeline.spans if span.phase.at_end == (Collect(),)]
    assert collected == [pretraining + 200 * half for half in (1, 3, 5, 7, 9)]
    # The standard schedule, up to the moment where it is left.
    assert timeline.lr(1) == timeline.lr(100 * 45) == 0.1
    assert timeline.lr(140 * 45 + 1) == pytest.approx((0.1 + 0.001) / 2)
    for share in (0.3, 0.5, 0.8, 0.95):
        (run,) = FGE(pretraining=share).plan(Setting(get_recipe("cifar"))).runs
        assert [run.epochs, run.phases[0].epochs] == pytest.approx([200, 200 * share])


def test_one_threshold_decides_over_all_layers(features, monkeypatch):
    before = []
    prune = Session.prune

    def watched(session, sparsity, step):
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


def test_each_network_is_trained_twice_as_long():
    plan = PruneFineTune().plan(Setting(get_recipe("cifar")))
    assert [run.epochs for run in plan.runs] == [500] * 3
    assert plan.trainings == 6
    fine_tuning = plan.runs[0].phases[1]
    assert fine_tuning.schedule[0].lr == pytest.approx(0.001)
