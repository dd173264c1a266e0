"""The lottery-ticket-rewinding ensemble: one mask, several trainings from one early state."""

import pytest
import torch

from freetickets.methods import LTR, Remember, Setting, Stretch, get_recipe
from freetickets.methods.sparse import cut
from freetickets.ticket import Ticket
from freetickets.training.folder import Checkpoints


def test_tickets_share_one_mask_and_begin_with_one_set_of_weights(features, tmp_path, monkeypatch):
    recalled, saved = [], []
    unpack, save = Ticket.unpack, Checkpoints.save

    def watched(packed):
        recalled.append(unpack(packed))
        return recalled[-1]

    def watched_save(self, tree):
        saved.append((tree["state"]["run"], sorted(tree["state"]["shelf"])))
        save(self, tree)

    monkeypatch.setattr(Ticket, "unpack", watched)
    monkeypatch.setattr(Checkpoints, "save", watched_save)
    settings = {"epochs": 6, "batch_size": 10, "quiet": True, "output": tmp_path}
    first, *others = LTR(tickets=3, sparsity=0.7).fit("mlp-16", features, **settings).tickets
    for other in others:
        for name, mask in first.topology.items():
            assert torch.equal(mask, other.topology[name])
            assert not torch.equal(first.state[name], other.state[name])
    total = sum(mask.numel() for mask in first.topology.values())
    active = sum(int(mask.sum()) for mask in first.topology.values())
    assert active == pytest.approx(0.3 * total, abs=2)
    # Each training takes the early weights, which were still dense, and the mask.
    early, pruned = recalled[::2], recalled[1::2]
    assert len(early) == len(pruned) == 3
    for weights, mask in zip(early, pruned, strict=True):
        assert all(torch.equal(weights.state[name], early[0].state[name]) for name in weights.state)
        assert all(bool(weights.state[name].all()) for name in first.topology)
        assert all(
            torch.equal(mask.topology[name], first.topology[name]) for name in first.topology
        )
    # What is remembered leaves with the last run that starts from it.
    assert {(run, ("early", "pruned")) for run in (1, 2, 3)} <= {(r, tuple(s)) for r, s in saved}
    assert saved[-1] == (4, [])


def test_the_mask_is_searched_once_and_the_schedule_cut_where_the_rest_is_trained():
    cifar = get_recipe("cifar")
    plan = LTR(tickets=3).plan(Setting(cifar, seed=5))
    search, *retrainings = plan.runs
    ends = [phase.at_end for phase in search.phases]
    assert ends == [(Remember("early"),), (Remember("pruned"),)]
    assert search.phases[0].epochs == pytest.approx(12.5)
    assert search.epochs == 250
    assert [run.seed for run in plan.runs] == [5, 6, 7, 8]
    for run in retrainings:
        assert run.epochs == pytest.approx(237.5)
        assert run.phases[0].schedule == search.phases[1].schedule
    assert search.phases[1].pruning.interval == cifar.interval
    assert LTR(interval=7).plan(Setting(cifar)).runs[0].phases[1].pruning.interval == 7
    schedule = (Stretch(4, 0.3), Stretch(2, 0.2), Stretch(1, 0.1))
    for at in (0, 1, 4, 5.5, 6, 7):
        before, after = cut(schedule, at)
        assert sum(s.epochs for s in before) == at
        assert sum(s.epochs for s in (*before, *after)) == 7
        rates = [s.lr for s in (*before, *after)]
        assert rates == sorted(rates, reverse=True)
