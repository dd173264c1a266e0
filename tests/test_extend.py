"""Parts of one's own: the files of examples/extend, from Python and from the command line."""

import importlib
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import freetickets as ft
from freetickets.data.spec import DATASETS
from freetickets.methods import METHODS, Event, Setting, get_recipe
from freetickets.models.names import MODELS
from freetickets.sparsity.score import SCORES
from freetickets.training.optimizer import OPTIMIZERS

from .training.conftest import read_log

EXTEND = Path(__file__).parents[1] / "examples" / "extend"
SMALL: dict[str, Any] = {"batch_size": 10, "epochs": 4, "quiet": True, "backend": "masked"}
TINY = "--model mlp-8 --train-samples 200 --epochs 6 --backend masked --quiet --tickets 2"


@pytest.fixture
def extend(monkeypatch):
    """Imports a module of the examples, which is forgotten afterwards."""
    monkeypatch.chdir(EXTEND)
    monkeypatch.setattr(sys, "path", [*sys.path, str(EXTEND)])
    for registry in (METHODS, DATASETS, MODELS, SCORES, OPTIMIZERS):
        monkeypatch.setattr(registry, "_known", dict(registry._known))
    yield importlib.import_module
    for path in EXTEND.glob("*.py"):
        sys.modules.pop(path.stem, None)


def with_phases(plan, change):
    """A plan of one run whose phases are changed."""
    (run,) = plan.runs
    return replace(plan, runs=(replace(run, phases=tuple(map(change, run.phases))),))


@dataclass(frozen=True)
class Unnamed(ft.EDST):
    """EDST with phases of other names, to be told apart."""

    def plan(self, setting):
        plan = super().plan(setting)
        return with_phases(plan, lambda phase: replace(phase, name=f"my {phase.name}"))


@dataclass(frozen=True)
class Named(Unnamed):
    name: ClassVar[str] = "named"


@pytest.mark.parametrize(("kind", "name"), [(Unnamed, f"{__name__}:Unnamed"), (Named, "named")])
def test_a_method_of_ones_own_is_what_is_trained(features, tmp_path, kind, name):
    method = kind(tickets=2, interval=2)
    ensemble = method.fit("mlp-8", features, output=tmp_path / "run", **SMALL)
    assert [ticket.info["phase"] for ticket in ensemble.tickets] == ["my refine 1", "my refine 2"]
    assert {ticket.info["method"] for ticket in ensemble.tickets} == {name}
    again = method.fit("mlp-8", features, output=tmp_path / "run", **SMALL)  # it is finished
    loaded = ft.load(tmp_path / "run", method=method)
    for other in (again, loaded):
        assert np.array_equal(other.predict_proba(features[0]), ensemble.predict_proba(features[0]))


def test_a_name_that_is_taken_and_an_option_that_no_file_can_hold_are_refused(refused, features):
    @dataclass(frozen=True)
    class Usurper(ft.EDST):
        name: ClassVar[str] = "edst"

    @dataclass(frozen=True)
    class Odd(ft.EDST):
        name: ClassVar[str] = "odd"
        rule: Any = print

    for method, message in (
        (Usurper(), "there is a method named 'edst' already"),
        (Odd(), "option rule of odd must be a number, a text"),
    ):
        refused(message, method.fit, "mlp-8", features, **SMALL)


def test_an_unknown_method_says_how_to_make_it_known(refused, features, tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    ensemble = Named(tickets=2, interval=2).fit("mlp-8", features, **SMALL)
    for name, message in (
        ("named", "unknown method 'named'"),
        ("hostile:Mine", "is not known here: import it first, by --import hostile"),
        ("subprocess:Popen", "must be a data class"),
    ):
        for ticket in ensemble.tickets:
            ticket.info["method"] = name
        ensemble.save(tmp_path / "run")
        refused(message, ft.load, tmp_path / "run")


@pytest.mark.parametrize(
    "flags",
    [
        ("method:Cycles",),
        ("edst", "--grow", "growth:noisy_gradient"),
        ("edst", "--optimizer", "optimizer:SignSGD", "--lr", "0.001"),
    ],
    ids=lambda flags: flags[-1],
)
@pytest.mark.usefixtures("extend")
def test_each_example_is_trained_by_a_command(cli, tmp_path, flags):
    answer = cli("train", *flags, *TINY.split(), "-o", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert len(list((tmp_path / "run" / "tickets").iterdir())) == 2


@pytest.mark.usefixtures("extend")
def test_a_data_set_of_ones_own_is_trained_on_and_scored(cli, tmp_path):
    flags = "--dataset dataset:rings --model mlp-32-32 --epochs 20 --quiet --tickets 1"
    answer = cli("train", "dst", *flags.split(), "-o", tmp_path / "run")
    assert answer.code == 0, answer.err
    found = ft.load(tmp_path / "run").predict([[1.0, 0.0], [0.0, -2.0], [3.0, 0.0]])
    assert found.tolist() == [0, 1, 2]


def test_an_event_of_ones_own_happens_and_leaves_the_topology(extend, tmp_path, features):
    method = extend("event").ShakenEDST(tickets=2, interval=1000, shake=0.5)
    phases = method.plan(Setting(get_recipe("small"))).runs[0].phases
    events = [[each.event for each in phase.at_end] for phase in phases]
    assert events == [[], ["collect", "shake"], ["collect"]]
    tickets = method.fit("mlp-8", features, output=tmp_path, **SMALL).tickets
    assert {"collect shake", "collect"} <= {row["events"] for row in read_log(tmp_path)}
    for name, mask in tickets[0].topology.items():
        assert torch.equal(mask, tickets[1].topology[name])
        assert not torch.equal(tickets[0].state[name], tickets[1].state[name])


@pytest.mark.usefixtures("extend")
def test_who_evaluates_it_has_to_import_it_and_a_report_need_not(tmp_path):
    run, page = tmp_path / "run", tmp_path / "page.html"
    for words, code in (
        (("train", "event:ShakenEDST", *TINY.split(), "-o", run), 0),
        (("evaluate", run), 2),
        (("evaluate", run, "--import", "event"), 0),
        (("report", run, "-o", page), 0),
    ):
        command = [sys.executable, "-m", "freetickets", *map(str, words)]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        assert done.returncode == code
        if code:
            assert "the method 'event:ShakenEDST' is not known here" in done.stderr
            assert done.stderr.count("\n") == 1
    assert "event:ShakenEDST" in page.read_text()


@dataclass(frozen=True)
class Count(Event):
    """Remembers how often it has happened, and draws a number."""

    event: ClassVar[str] = "count"

    def happen(self, stage):
        before = stage.recall("count")
        ticket = stage.take()
        drawn = torch.rand(1, generator=stage.generator).item()
        ticket.info["drawn"] = [*(before.info["drawn"] if before else []), drawn]
        stage.remember("count", ticket)
        return f"drawn: {ticket.info['drawn']}"


@dataclass(frozen=True)
class Counting(ft.EDST):
    """EDST that counts."""

    name: ClassVar[str] = "counting"

    def plan(self, setting):
        plan = super().plan(setting)
        return with_phases(plan, lambda phase: replace(phase, at_end=(*phase.at_end, Count())))


def test_what_an_event_keeps_and_draws_survives_a_kill(features, tmp_path, capsys, killed_at):
    method, settings = Counting(tickets=2, interval=2), {**SMALL, "quiet": False}

    def drawn():
        return [line for line in capsys.readouterr().err.splitlines() if "drawn: " in line]

    method.fit("mlp-8", features, output=tmp_path / "whole", **settings)
    whole = drawn()
    assert len(whole) == 3
    assert len(set(whole[-1].split(", "))) == 3

    def train():
        method.fit("mlp-8", features, output=tmp_path / "killed", **settings)

    killed_at(train, 9, 8)
    train()
    assert drawn()[-1] == whole[-1]


def test_a_switch_before_the_method_does_not_hide_it(cli):
    for switch in ("--amp", "--nesterov", "--no-nesterov", "--sync-batchnorm"):
        answer = cli("plan", switch, "dst", "--escape-rate", "0.5", "--model", "mlp-8")
        assert answer.code == 2
        assert "unknown flag --escape-rate" in answer.err  # which is EDST's
        answer = cli("plan", "--model", "mlp-8", switch, "edst", "--escape-rate", "0.5", "--json")
        assert (answer.code, '"refine 3"' in answer.out) == (0, True)
