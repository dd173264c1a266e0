"""The lottery-ticket-rewinding ensemble: one mask, several trainings from one early state."""

import pytest
import torch

from freetickets.methods import LTR, Remember, Setting, Stretch, get_recipe
from freetickets.methods.sparse import cut
from freetickets.training.checkpoint import Checkpoints
from freetickets.training.trainer import Trainer


def test_the_tickets_share_one_mask_and_differ_in_weights(features, monkeypatch):
    shelves = []
    remembered = Trainer._remembered

    def watched(trainer, name):
        shelves.append((name, remembered(trainer, name)))
        return shelves[-1][1]

    monkeypatch.setattr(Trainer, "_remembered", watched)
    method = LTR(tickets=3, sparsity=0.7)
    ensemble = method.fit("mlp-16", features, epochs=6, batch_size=10, quiet=True)
    first, *others = ensemble.tickets
    assert first.topology
    for other in others:
        for name, mask in first.topology.items():
            assert torch.equal(mask, other.topology[name])
            assert not torch.equal(first.state[name], other.state[name])
    total = sum(mask.numel() for mask in first.topology.values())
    active = sum(int(mask.sum()) for mask in first.topology.values())
    assert active == pytest.approx(0.3 * total, abs=2)
    # Each began with the same early weights, which were still dense.
    assert [name for name, _ in shelves] == ["early", "pruned"] * 3
    early = dict(shelves)["early"]
    assert all(bool(early.state[name].all()) for name in first.topology)


def test_the_mask_is_searched_once_and_the_rest_is_trained_for_each_ticket():
    plan = LTR(tickets=3).plan(Setting(get_recipe("cifar"), seed=5))
    search, *retrainings = plan.runs
    assert [phase.at_end for phase in search.phases] == [
        (Remember("early"),), (Remember("pruned"),),
    ]  # fmt: skip
    assert search.phases[0].epochs == pytest.approx(12.5)
    assert search.epochs == 250
    assert [run.seed for run in plan.runs] == [5, 6, 7, 8]
    for run in retrainings:
        assert run.epochs == pytest.approx(237.5)
        assert run.phases[0].schedule == search.phases[1].schedule


def test_a_schedule_is_cut_anywhere():
    schedule = (Stretch(4, 0.3), Stretch(2, 0.2), Stretch(1, 0.1))
    for at in (0, 1, 4, 5.5, 6, 7):
        before, after = cut(schedule, at)
        assert sum(s.epochs for s in before) == at
        assert sum(s.epochs for s in (*before, *after)) == 7
        rates = [s.lr for s in (*before, *after)]
        assert rates == sorted(rates, reverse=True)


def test_what_is_remembered_leaves_with_the_last_run_that_starts_from_it(features, tmp_path):
    shelves = []
    save = Checkpoints.save

    def watched(self, tree):
        shelves.append((tree["state"]["run"], sorted(tree["state"]["shelf"])))
        save(self, tree)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", watched)
        LTR(tickets=2).fit("mlp-8", features, epochs=6, batch_size=10, quiet=True, output=tmp_path)
    assert (1, ["early", "pruned"]) in shelves
    assert (2, ["early", "pruned"]) in shelves
    assert shelves[-1] == (3, [])


def test_the_interval_of_pruning_is_the_recipes_unless_given():
    setting = Setting(get_recipe("cifar"))
    for ltr, steps in ((LTR(), get_recipe("cifar").interval), (LTR(interval=7), 7)):
        pruning = ltr.plan(setting).runs[0].phases[1].pruning
        assert pruning is not None
        assert pruning.interval == steps
