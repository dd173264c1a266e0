"""The command that re-makes the paper's tables."""

import json
from dataclasses import replace
from unittest.mock import Mock

import pytest

from freetickets.cli import reproduce
from freetickets.experiments import experiment_names, load, page
from freetickets.experiments.grid import find_grid
from freetickets.training.job import Job


@pytest.fixture
def no_page(monkeypatch):
    """Writing the page is another's business; what it would be of is noted."""
    asked: list[list[str]] = []
    monkeypatch.setattr(
        page, "write", lambda experiments, *_, **__: asked.append([it.name for it in experiments])
    )
    return asked


def test_mistakes_and_stages_of_unknown_lengths_are_one_line(cli, one_line, monkeypatch, tmp_path):
    for command, words in (
        ("", "see freetickets reproduce --list"),
        ("cifar11", "unknown experiment 'cifar11': did you mean 'cifar10'?"),
        ("fgsm --scale smok", "unknown scale 'smok': did you mean 'smoke'?"),
        ("fgsm --only edts", "unknown method 'edts': did you mean 'edst'?"),
        ("fgsm --only mimo --dry-run", "these experiments don't train mimo"),
        ("fgsm --seeds 0", "--seeds: give 1 or more, not 0"),
        ("fgsm --dry-run --throughput 0", "--throughput 0: give FLOPs per second"),
        ("fgsm --throughput 1e12", "add --dry-run"),
        ("fgsm --scale medium", "unknown experiment 'fgsm': known: all, t1, t2, t3, t4, t5"),
    ):
        assert words in one_line(cli("reproduce", *command.split()))
    grid = find_grid("medium")
    stage = replace(grid.experiments[1], provisional="its lengths are not measured")
    monkeypatch.setattr(reproduce, "find_grid", lambda _: replace(grid, experiments=(stage,)))
    answer = cli("reproduce", "t2", "--scale", "medium", "--output", tmp_path)
    assert "t2 can't be trained yet: its lengths are not measured" in one_line(answer)


def test_the_list_has_all_tables_and_figures(cli):
    told = json.loads(cli("reproduce", "--list", "--json").out)
    paper = [each for each in told if each["scale"] is None]
    assert [each["name"] for each in paper] == experiment_names()
    assert len({name for each in paper for name in each["cells"]}) == 71
    own = {(each["scale"], each["name"]) for each in told if each["scale"]}
    assert own >= {("medium", "t1"), ("search", "edst")}
    table = cli("reproduce", "--list").out
    assert "Table 13" in table
    assert "stages of --scale medium" in table


@pytest.mark.slow
def test_costs_at_paper_scale_are_the_papers(cli, tmp_path):
    command = ("reproduce", "all", "--scale", "paper", "--dry-run", "--output", tmp_path)
    told = json.loads(cli(*command, "--throughput", "1e14", "--json").out)
    known = [price for price in told["prices"] if price["paper"] is not None]
    rows = [row for name in experiment_names() for row in load(name).rows]
    assert len(known) == sum("train_flops" in row.paper for row in rows)
    for price in known:
        assert (abs(price["difference"]) <= 0.02) == price["derivable"], price["label"]
    (dense,) = {p["seconds"] for p in told["prices"] if p["cell"] == "cifar10-wrn-28-10-dense"}
    assert dense == pytest.approx(3.54e17 / 1e14, rel=0.01)
    assert (told["tasks"], told["finished"]) == (71 + 2 * 32, 0)
    assert told["seconds"] == pytest.approx(told["flops"] / 1e14, rel=0.01)
    assert not any(tmp_path.iterdir())  # dry means dry


def test_failures_are_named_at_the_end_and_no_time_told_without_a_throughput(
    cli, tmp_path, no_page, monkeypatch
):
    answer = cli("reproduce", "growth", "--scale", "paper", "--dry-run", "--output", tmp_path)
    assert answer.code == 0
    assert "--throughput 1e14 estimates the time" in answer.out
    assert "0 of 4 trainings are finished" in answer.out
    monkeypatch.setattr(Job, "train", Mock(side_effect=RuntimeError("out of memory")))
    answer = cli("reproduce", "escape-rate", "--scale", "smoke", "--output", tmp_path, "--quiet")
    assert answer.code == 2
    last = answer.err.splitlines()[-1]
    assert last.startswith("freetickets: 6 of 6 cells failed (cifar10-wrn-28-10-edst")
    assert no_page == [["escape-rate"]]


def test_a_table_is_made_once_and_shown_beside_the_papers(cli, tmp_path, no_page):
    options = ("--scale", "smoke", "--only", "dense", "--output", tmp_path)
    first, again = cli("reproduce", "fgsm", *options), cli("reproduce", "fgsm", *options)
    assert first.code == again.code == 0, first.err
    assert len([line for line in first.err.splitlines() if " left" in line]) == 2
    assert "[2/2]" in first.err
    paper = load("fgsm").rows[5].paper["attacks.fgsm.mean"]
    for words in (f"[{paper:g}]", "ensembles are more accurate under FGSM", "results.md"):
        assert words in first.out
    assert "ensembles-help-under-attack" not in first.out
    assert "2 of 2 cells are finished already" in again.err
    assert again.out == first.out
    assert no_page == [["fgsm"], ["fgsm"]]
    priced = json.loads(cli("reproduce", "fgsm", *options, "--dry-run", "--json").out)
    assert (priced["tasks"], priced["finished"], priced["flops"]) == (2, 2, 0)
    assert all(price["seconds"] > 0 for price in priced["prices"])


@pytest.mark.slow
def test_every_kind_of_cell_and_of_measurement_works(cli, tmp_path, no_page):
    """`make smoke` runs all; here are experiments with all methods and all that is measured."""
    names = ("cifar10", "imagenet", "feature-maps", "trajectories", "snapshot-fge", "ood-cifar10")
    options = ("--scale", "smoke", "--seeds", 1, "--output", tmp_path, "--json")
    answer = cli("reproduce", *names, "fgsm", *options)
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert told["failed"] == {}
    records = [json.loads(path.read_text()) for path in tmp_path.glob("smoke/results/*/*.json")]
    assert len(records) == told["cells"]
    measured = {key for record in records for key in record["metrics"]}
    assert {"shift", "natural", "ood", "attacks", "features", "diversity", "layers"} <= measured
    assert {record["method"] for record in records} >= {"edst", "dst", "fge", "snapshot", "mimo"}
    assert len(list(tmp_path.glob("smoke/cells/*/0/trajectory"))) == 4
