"""What a plan's execution promises, whichever method made the plan."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import freetickets as ft
from freetickets.seeds import derive
from freetickets.sparsity.distribution import allocate
from freetickets.training.session import Session
from freetickets.training.state import Validation
from freetickets.training.trainer import Trainer

from .conftest import read_log

SMALL = {"batch_size": 10, "epochs": 4, "quiet": True}  # 54 of 60 samples: 6 steps an epoch


@pytest.fixture
def wide():
    """Enough inputs for layers in which a share of the weights is a number to speak of."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(60) % 3
    return torch.randn(60, 30, generator=generator) + 2 * torch.eye(30)[labels], labels


@pytest.fixture
def explorations(monkeypatch):
    """The step and the rate of each exploration that is made."""
    found: list[tuple[int, float]] = []
    explore = ft.Sparsifier.explore

    def noted(self, rate):
        found.append((self.steps, rate))
        explore(self, rate)

    monkeypatch.setattr(ft.Sparsifier, "explore", noted)
    return found


def replaced_share(a, b):
    """The share of a ticket's active weights that another one does not have."""
    gone = sum(int((a.topology[name] & ~b.topology[name]).sum()) for name in a.topology)
    return gone / sum(int(mask.sum()) for mask in a.topology.values())


# ---- tickets and topologies


@pytest.mark.parametrize("tickets", [1, 3])
def test_edst_collects_tickets_in_one_run_with_an_escape_between(features, tmp_path, tickets):
    method = ft.EDST(tickets=tickets, interval=2)
    ensemble = method.fit("mlp-8", features, output=tmp_path, **{**SMALL, "epochs": 6})
    told = [(t.info["number"], t.info["phase"], t.info["run"]) for t in ensemble.tickets]
    assert told == [(number, f"refine {number}", 1) for number in range(1, tickets + 1)]
    rows = read_log(tmp_path)
    events = [row["events"] for row in rows if row["events"]]
    assert events == ["collect escape"] * (tickets - 1) + ["collect"]
    assert len(list((tmp_path / "tickets").iterdir())) == tickets
    # A row for each epoch, and for each end of a phase.
    assert {6, 12, 18, 24, 30, 36} | {t.info["step"] for t in ensemble.tickets} <= {
        int(row["step"]) for row in rows
    }
    assert [row["phase"] for row in rows] == sorted(row["phase"] for row in rows)
    assert float(rows[0]["lr"]) == 0.05
    itop = [float(row["itop_rate"]) for row in rows]
    assert itop == sorted(itop)
    assert itop[-1] > 0.2


@pytest.mark.parametrize(("grow", "least"), [("random", 0.75), ("gradient", 0.5)])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8])
def test_consecutive_tickets_differ_by_about_the_escape_rate(wide, rate, grow, least):
    method = ft.EDST(tickets=3, sparsity=0.95, rate=0.0, escape_rate=rate, grow=grow)
    tickets = method.fit("mlp-64", wide, **{**SMALL, "epochs": 6}).tickets
    for a, b in pairwise(tickets):
        # Less than the rate: a weight may be grown again at once, by gradient more often.
        assert least * rate <= replaced_share(a, b) <= rate + 0.02


def test_the_members_of_dst_have_topologies_and_initialisations_of_their_own(wide):
    method = ft.DST(tickets=3, rate=0.0)
    tickets = method.fit("mlp-32", wide, lr=1e-12, **SMALL).tickets
    assert [t.info["seed"] for t in tickets] == [0, 1, 2]
    assert [t.info["run"] for t in tickets] == [1, 2, 3]
    for a, b in pairwise(tickets):
        assert replaced_share(a, b) > 0.5
        shared = a.topology["fc1.weight"] & b.topology["fc1.weight"]
        assert not torch.isclose(a.state["fc1.weight"], b.state["fc1.weight"])[shared].any()


def test_a_static_topology_never_changes_and_an_explored_one_does(wide):
    def topologies(method, epochs):
        tickets = method.fit("mlp-32", wide, **{**SMALL, "epochs": epochs}).tickets
        return [ft.sparsity.topology.digest(ticket.topology) for ticket in tickets]

    static = topologies(ft.Static(tickets=2), 1)
    assert topologies(ft.Static(tickets=2), 5) == static
    assert topologies(ft.DST(tickets=2, rate=0.0), 1) == static  # which starts from the same
    assert not set(topologies(ft.DST(tickets=2, interval=2), 5)) & set(static)


@pytest.mark.parametrize("preset", ["robust", "paper"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop"])
def test_every_ticket_has_exactly_the_planned_weights(wide, optimizer, preset):
    method = ft.EDST(tickets=2, sparsity=0.9, interval=2)
    ensemble = method.fit(
        "mlp-32-16", wide, preset=preset, optimizer=optimizer, lr=0.01, validation=0.2, **SMALL
    )
    shapes = {"fc1.weight": (32, 30), "fc2.weight": (16, 32), "fc.weight": (3, 16)}
    planned = allocate(shapes, 0.9, "erk")
    total = sum(a * b for a, b in shapes.values())
    for ticket in ensemble.tickets:
        for name, mask in ticket.topology.items():
            assert int(mask.sum()) == planned[name]
            assert not ticket.state[name][~mask].any()
            # The authors' way, some weights were grown by the very step that was collected.
            trained = (ticket.state[name][mask] != 0).float().mean()
            assert trained > (0.8 if preset == "robust" else 0)
        assert set(ticket.topology) == {n for n, (a, b) in shapes.items() if planned[n] < a * b}
        assert ticket.info["sparsity"] == pytest.approx(1 - sum(planned.values()) / total)


@pytest.mark.parametrize("interval", [1, 2, 3, 5, 50])
@pytest.mark.parametrize("preset", ["robust", "paper"])
def test_only_paper_explores_right_before_a_collection(features, explorations, preset, interval):
    method = ft.EDST(tickets=3, interval=interval, rate=0.5, escape_rate=0.8)
    validation = {"validation": 0.2} if preset == "paper" else {}
    settings = {**SMALL, "epochs": 6, "preset": preset, **validation}
    tickets = method.fit("mlp-8", features, **settings).tickets
    if preset == "paper":  # to the last step, whichever is collected
        steps = [step for step, rate in explorations if rate == 0.5]
        assert steps == list(range(interval, 31, interval))
        return
    collections = [ticket.info["step"] for ticket in tickets]
    assert [step for step, rate in explorations if rate == 0.8] == collections[:-1]
    by_schedule = [step for step, rate in explorations if rate == 0.5]
    assert all(step % interval == 0 for step in by_schedule)
    assert not any(0 <= end - step < interval for end in collections for step in by_schedule)
    assert bool(by_schedule) == (interval < 10)


# ---- the paper preset


def test_paper_collects_the_phases_best_and_goes_on_from_the_last(features, tmp_path):
    method = ft.EDST(tickets=3, rate=0.0)  # without exploration the presets train alike
    settings = {**SMALL, "epochs": 14, "lr": 0.5, "validation": 0.3}
    logs = []
    for preset in ("robust", "paper"):
        output = tmp_path / preset
        tickets = method.fit("mlp-8", features, preset=preset, output=output, **settings).tickets
        rows = read_log(output)
        logs.append(rows)
    assert logs[0] == logs[1]
    assert [t.info["phase"] for t in tickets] == ["refine 1", "refine 2", "refine 3"]
    _, held_out = ft.data.hold_out(ft.data.arrays(*features), 0.3)
    assert held_out is not None
    steps = []
    for ticket in tickets:
        phase = [row for row in rows if row["phase"] == ticket.info["phase"]]
        best = max(phase, key=lambda row: float(row["validation_accuracy"]))  # the first of equals
        assert ticket.info["step"] == int(best["step"])
        assert ticket.info["validation_accuracy"] == float(best["validation_accuracy"])
        right = (ft.Ensemble([ticket]).predict(held_out) == held_out.labels.numpy()).mean()
        assert ticket.info["validation_accuracy"] == pytest.approx(right)
        steps.append(int(phase[-1]["step"]) - int(best["step"]))
    assert any(steps), "a test in which the best is always the last tests nothing"


# ---- data


def test_validation_samples_are_never_trained_on_and_nothing_is_lost(monkeypatch):
    seen: dict[str, set[float]] = {"step": set(), "score": set()}

    def spy(original, found):
        def noted(self, *args, **kwargs):
            inputs = next(a for a in args if isinstance(a, Tensor))
            found.update(inputs[:, 0].tolist())
            return original(self, *args, **kwargs)

        return noted

    for name, found in seen.items():
        monkeypatch.setattr(Session, name, spy(getattr(Session, name), found))
    ids = torch.arange(60.0)
    data = torch.stack([ids, torch.randn(60)], 1), torch.arange(60) % 3
    ft.DST(tickets=2, interval=3).fit("mlp-8", data, validation=0.2, **SMALL)
    assert len(seen["score"]) == 12
    assert seen["step"] == set(ids.tolist()) - seen["score"]


def test_training_learns_and_validation_is_scored_in_evaluation_mode(features, tmp_path):
    settings = {**SMALL, "epochs": 20, "validation": 0.3, "model_options": {"dropout": 0.5}}
    ensemble = ft.Dense().fit("mlp-32", features, output=tmp_path, **settings)
    first, *_, last = read_log(tmp_path)
    assert float(last["train_loss"]) < 0.7 * float(first["train_loss"])
    _, held_out = ft.data.hold_out(ft.data.arrays(*features), 0.3)
    assert held_out is not None
    loss = ft.metrics.nll(ensemble.member_log_proba(held_out), held_out.labels)
    assert float(last["validation_loss"]) == pytest.approx(loss, rel=1e-5)


def test_label_smoothing_changes_the_training_but_not_the_scores(features, tmp_path):
    rows = []
    for smoothing in (0.0, 0.5):
        settings = {**SMALL, "lr": 1e-12, "label_smoothing": smoothing}
        ft.Dense().fit("mlp-8", features, output=tmp_path / str(smoothing), **settings)
        rows.append(read_log(tmp_path / str(smoothing))[-1])
    assert rows[0]["train_loss"] != rows[1]["train_loss"]
    losses = [float(row["validation_loss"]) for row in rows]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_amp_trains_with_weights_in_single_precision(features, tmp_path):
    # Masked: the sparse kernels know single precision only.
    settings = {**SMALL, "epochs": 10, "backend": "masked"}
    method = ft.EDST(tickets=2, interval=3)
    plain = method.fit("mlp-8", features, **settings)
    mixed = method.fit("mlp-8", features, amp=True, output=tmp_path, **settings)
    assert all(t.dtype == torch.float32 for t in mixed.tickets[0].state.values())
    rows = read_log(tmp_path)
    assert float(rows[-1]["train_loss"]) < float(rows[0]["train_loss"])
    assert not torch.equal(mixed.tickets[0].state["fc.bias"], plain.tickets[0].state["fc.bias"])


# ---- what can go wrong


class Explosive(nn.Module):
    """A network whose loss is NaN from a step on."""

    def __init__(self, steps):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.steps = steps

    def forward(self, x):
        self.steps -= self.training
        return self.layer(x) if self.steps >= 0 else self.layer(x) * float("nan")


def test_a_loss_that_is_not_finite_leaves_earlier_tickets(refused, features, tmp_path, digests):
    # price() looks at a first network, the run's identity at another, the check at two more.
    networks = iter([*(Explosive(1e9) for _ in range(5)), Explosive(9)])
    fit, settings = ft.DST(tickets=2, sparsity=0.5).fit, {**SMALL, "checkpoint_seconds": 0}
    words = r"not finite at step 10 of run 2 .*lower --lr"
    refused(words, fit, lambda: next(networks), features, output=tmp_path, **settings)
    assert list(digests(tmp_path / "tickets")) == ["01.safetensors"]
    assert len(ft.load(tmp_path, lambda: Explosive(1e9), partial=True)) == 1


def test_a_finite_loss_that_has_diverged_leaves_the_checkpoint(refused, features, tmp_path):
    wild = {**SMALL, "lr": 30.0, "momentum": 0.0, "checkpoint_seconds": 0, "output": tmp_path}
    words = r"has diverged: .* step \d+ of run 1 .*lower"
    refused(words, ft.Dense().fit, "mlp-8", features, **wild)
    assert list((tmp_path / "checkpoint").iterdir())
    assert not (tmp_path / "tickets").exists()


@pytest.mark.parametrize(("validation", "lr"), [(0.0, 1e38), (0.2, 1e38), (0.2, 1e30)])
def test_a_network_that_a_step_ruined_is_no_ticket(refused, features, tmp_path, validation, lr):
    data = (features[0] * 1000, features[1])
    settings = {"batch_size": 60, "epochs": 1, "lr": lr, "validation": validation, "quiet": True}
    # One step, before it all is well.
    words = "not finite at step 1"
    refused(words, ft.Dense().fit, "mlp-8", data, output=tmp_path, **settings)
    assert not (tmp_path / "tickets").exists()


def test_a_short_phase_is_refused_and_guessing_counted_by_outputs(refused, features):
    words, settings = r"'refine 1' lasts .* less than a step", {"epochs": 1, "batch_size": 32}
    refused(words, ft.EDST(tickets=3).fit, "mlp-8", features, quiet=True, **settings)
    many = nn.Linear(6, 3000)  # whose first losses are more than ten times log 3 / 2
    ft.Dense().fit(many, (features[0] * 4, features[1] % 2), lr=1e-6, **SMALL)


@pytest.mark.parametrize("outputs", [(2,), (), (3, 4)], ids=str)
def test_outputs_that_do_not_fit_the_labels_are_one_line(refused, features, outputs):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 12)

        def forward(self, x):
            return self.layer(x)[:, : torch.Size(outputs).numel()].reshape(len(x), *outputs)

    refused(r"outputs have the shape .* labels up to 2", ft.Dense().fit, Odd, features, **SMALL)


def test_seeds_differ_by_use_and_a_network_starts_from_its_own(features):
    drawn = {derive(seed, use, step) for seed in range(9) for use in "ab" for step in range(9)}
    assert len(drawn) == 162
    assert all(0 <= value < 2**63 for value in drawn)
    assert derive(1, 23) != derive(12, 3) != derive("1", 23)
    tickets = []
    for seed in (5, 6):
        torch.manual_seed(seed)
        tickets += ft.Dense().fit("mlp-8", features, lr=1e-12, **SMALL).tickets
    assert torch.equal(tickets[0].state["fc1.weight"], tickets[1].state["fc1.weight"])


# ---- networks that become sparse as they train


@pytest.mark.parametrize(("explorer", "start"), [("granet", 0.5), ("gmp", 0.0), ("rigl", 0.8)])
def test_a_criterion_chooses_what_the_explorer_starts_with(wide, monkeypatch, explorer, start):
    found = []
    step = Session.step

    def watched(self, number, *args, **options):
        if number == 1:
            found.append(self.sparsifier.sparsity if self.sparsifier is not None else 0.0)
        return step(self, number, *args, **options)

    monkeypatch.setattr(Session, "step", watched)
    method = ft.DST(tickets=1, criterion="magnitude", explorer=explorer)
    (ticket,) = method.fit("mlp-32", wide, **SMALL).tickets
    assert found == [pytest.approx(start, abs=0.01)]
    assert ticket.info["sparsity"] == pytest.approx(0.8, abs=0.01)


def test_paper_collects_no_network_before_it_is_pruned(wide, monkeypatch):
    scores = iter([0.9, 0.8, 0.7, 0.6])  # each epoch is worse than the one before
    monkeypatch.setattr(Trainer, "_validate", lambda *_: Validation(1.0, next(scores)))
    method = ft.DST(tickets=1, explorer="gmp", interval=2)
    (ticket,) = method.fit("mlp-32", wide, preset="paper", **SMALL).tickets
    assert ticket.info["validation_accuracy"] == 0.7  # pruned at three quarters, after epoch 3
    assert ticket.info["sparsity"] == pytest.approx(0.8, abs=0.01)
