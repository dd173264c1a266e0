"""Cells are trained and measured once, whatever happens in between."""

from dataclasses import replace

import pytest
import torch

from freetickets.errors import FreeTicketsError, StoppedError
from freetickets.experiments import Cell, Needs, runner
from freetickets.experiments.grid import CellTask
from freetickets.experiments.results import Results, read_answers
from freetickets.experiments.runner import CellProgress, Runner
from freetickets.experiments.scales import DataPart, Scale, Substitute
from freetickets.experiments.substitutes import SubstituteFiles
from freetickets.methods import EDST, Dense
from freetickets.training.job import Job

SUBSTITUTE = Substitute(
    DataPart("fashion-mini", train=60, test=20, pool=2), "cifar", model="mlp-8",
    dense_epochs=2, batch_size=16, lr=0.05, interval=2, samples=10,
)  # fmt: skip
SCALE = Scale("tiny", "for tests", {"cifar10": SUBSTITUTE})
DENSE = CellTask(Cell("cifar10", "wrn-28-10", Dense()), 0)
TWO = CellTask(Cell("cifar10", "wrn-28-10", EDST(tickets=2)), 0)
EVERYTHING = Needs(
    corruptions=("fog", "contrast"), ood=("svhn", "cifar100", "gaussian-noise"), attacks=("fgsm",),
    features=True, imagenet_a=True,
)  # fmt: skip


def runner_with(folder, **changes):
    scale = replace(SCALE, substitutes={"cifar10": replace(SUBSTITUTE, **changes)})
    return Runner(scale, folder, str(folder / "no data"))


@pytest.fixture
def tiny(tmp_path):
    return runner_with(tmp_path)


def log_of(runner, task):
    return (runner.folder / "cells" / task.cell.name / "0" / "log.csv").read_text()


def test_a_result_says_all_that_tables_need(tiny):
    task = replace(TWO, needs=EVERYTHING, members=(1,))
    record = tiny.run(task)
    metrics = record["metrics"]
    assert metrics["samples"] == 20  # the whole test set, although other sets are cut
    (shift,) = metrics["shift"].values()
    assert (shift["samples"], sorted(shift["types"])) == (10, ["contrast", "fog"])
    assert set(metrics["ood"]) == {"svhn", "cifar100", "gaussian-noise"}
    assert metrics["attacks"]["fgsm"]["samples"] == 10
    assert metrics["features"]
    assert set(record["first"]) == {"1", "2"}
    assert set(record["first"]["1"]["ood"]) == set(metrics["ood"])
    assert record["data"] == SUBSTITUTE.data.text
    assert record["model"] == "mlp-8"
    assert record["ledger"]["relative_flops"] == tiny.price(task).relative_flops
    phases = [phase["phase"] for phase in record["ledger"]["phases"]]
    assert phases == ["explore", "refine 1", "refine 2"]
    assert record["settings"]["batch_size"] == 16
    assert record["origin"]["torch"] == torch.__version__
    assert record["notes"] == [
        "negatives of fashion-mini stands for svhn",
        "shuffled tiles of fashion-mini stands for cifar100",
        "left out: imagenet-a, which is not in the data folder",
    ]
    kept = Results.load(tiny.folder).get(task.cell, 0)
    assert kept["metrics"]["ensemble"] == pytest.approx(metrics["ensemble"])
    # The answers to each image are kept beside the scores.
    answers = read_answers(tiny.folder, kept)
    scores = [*metrics["members"], metrics["ensemble"]]
    for found, own in zip(answers.scores(), scores, strict=True):
        assert found == pytest.approx(own, abs=1e-4)
    corrupted = answers.shifted["corruptions"]
    assert (corrupted.versions, corrupted.correct.shape) == (2 * 5, (3, 10))
    accuracy = corrupted.correct[-1].sum() / (10 * 10)
    assert accuracy == pytest.approx(shift["means"]["given"]["accuracy"])
    assert set(answers.unknown) == {"test", *metrics["ood"]}


def test_a_cell_whose_record_or_answers_are_lost_or_damaged_is_not_finished(tiny):
    record = tiny.run(DENSE)
    told = tiny.folder / "results" / DENSE.cell.name / "0.json"
    path = told.with_suffix(".npz")
    text, data = told.read_bytes(), path.read_bytes()
    for damage in (
        path.unlink,
        lambda: path.write_bytes(data[:-1]),
        lambda: told.write_bytes(text[:-40]),
    ):
        damage()
        assert tiny.result(DENSE) is None
        with pytest.raises(FreeTicketsError, match="is damaged"):
            Results.load(tiny.folder)
        assert tiny.run(DENSE)["metrics"] == record["metrics"]
        assert tiny.result(DENSE) is not None
        assert path.exists()


def test_a_finished_cell_is_not_repeated(tiny, monkeypatch):
    assert tiny.run_all([DENSE, TWO], CellProgress(quiet=True)) == {}
    monkeypatch.delattr(Job, "train")
    again = CellProgress(quiet=True)
    assert tiny.run_all([DENSE, TWO], again) == {}
    assert again.finished == 0


def test_a_run_with_other_settings_is_another_result_moved_out_of_the_way_and_not_lost(
    tiny, tmp_path, capsys, digests
):
    record = tiny.run(DENSE)
    run = tiny.folder / "cells" / DENSE.cell.name / "0"
    before = digests(run / "tickets")
    for number, factor in enumerate((1.5, 2.0), start=1):
        longer = runner_with(tmp_path, dense_epochs=2 * factor)
        assert longer.result(DENSE) is None
        flops = longer.run(DENSE)["ledger"]["dense_flops"]
        assert flops == pytest.approx(factor * record["ledger"]["dense_flops"])
        assert f"moved to {run.with_name(f'old-{number}')}" in capsys.readouterr().err
    assert digests(run.with_name("old-1") / "tickets") == before
    assert digests(run / "tickets") != before


def test_what_two_experiments_measure_is_kept_together(tiny):
    attacked = replace(TWO, needs=Needs(attacks=("fgsm",)), members=(1,))
    unknown = replace(TWO, needs=Needs(ood=("gaussian-noise",)))
    tiny.run(attacked)
    log = log_of(tiny, TWO)
    assert tiny.result(unknown) is None
    record = tiny.run(unknown)
    assert {"ood", "attacks"} <= set(record["metrics"])
    assert tiny.result(attacked) is not None
    assert tiny.result(unknown) is not None
    assert log_of(tiny, TWO) == log


def test_a_cell_that_fails_is_told_and_the_others_go_on(tiny, monkeypatch, capsys):
    train = Job.train

    def fail(self, reporter):
        if self.config.method == "dense":
            raise ZeroDivisionError("too small\nby far")
        return train(self, reporter)

    monkeypatch.setattr(Job, "train", fail)
    failed = tiny.run_all([DENSE, TWO], CellProgress(quiet=True))
    assert failed == {DENSE.name: "ZeroDivisionError: too small"}
    assert tiny.result(TWO) is not None
    line, *_ = capsys.readouterr().err.splitlines()
    assert "[1/2] cifar10-wrn-28-10-dense, seed 0 failed: ZeroDivisionError: too small" in line


@pytest.mark.parametrize("attacks", [("fgsm",), ()])
def test_a_set_that_cannot_be_had_is_left_out_and_told(tiny, monkeypatch, attacks):
    monkeypatch.setattr(SubstituteFiles, "ood", lambda *_: {"svhn": ("nowhere/svhn.npy", "svhn")})
    needs = Needs(ood=("svhn",), attacks=attacks)
    record = tiny.run(replace(TWO, needs=needs))
    assert record["metrics"]["ensemble"]
    assert ("attacks" in record["metrics"]) == bool(attacks)
    assert "ood" not in record["metrics"]
    (note,) = record["notes"]
    assert note.startswith("left out: nowhere/svhn.npy")


def test_interrupted_it_goes_on_where_it_was(tiny, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner, "measure", interrupt)
        with pytest.raises(StoppedError, match="0 of 2 cells are finished"):
            tiny.run_all([DENSE, TWO], CellProgress(quiet=True))
    before = log_of(tiny, DENSE)
    assert tiny.run_all([DENSE, TWO], CellProgress(quiet=True)) == {}
    assert log_of(tiny, DENSE) == before  # with its seconds: nothing was trained again


def test_a_price_that_cannot_be_told_fails_with_its_cell(tiny, monkeypatch):
    def refuse(self, *_):
        raise FreeTicketsError("less than a step")

    monkeypatch.setattr(Job, "price", refuse)
    assert tiny.run_all([DENSE], CellProgress(quiet=True)) == {DENSE.name: "less than a step"}


def test_only_the_first_seed_is_recorded(tiny):
    shown = CellTask(Cell("cifar10", "wrn-28-10", EDST()), 0)
    assert tiny.config(shown).trajectory == 1
    assert tiny.config(replace(shown, seed=1)).trajectory == 0
    assert tiny.config(DENSE).trajectory == 0
