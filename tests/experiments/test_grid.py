"""Grids: what is trained in which order, on which images, and what is refused."""

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from freetickets import data
from freetickets.errors import FreeTicketsError
from freetickets.evaluation import Predictions
from freetickets.experiments import experiment_names, load, needed
from freetickets.experiments.grid import find_grid, grid_names, make_tasks, parse_grid
from freetickets.experiments.results import Results, read_answers
from freetickets.experiments.runner import CellProgress, Runner
from freetickets.experiments.scales import SCALES, DataPart
from freetickets.experiments.substitutes import SubstituteFiles, digest_of, of_each_class

TINY = """
summary: for tests
substitutes:
  few:
    data: {source: fashion-mini, per_class: 6, pool: 2}
    recipe: cifar
    dense_epochs: 2
    batch_size: 16
    lr: 0.05
    samples: 10
    unknown: 20
    real: true
    settings: {validation: 0.0}
shared: {model: mlp-8, dataset: few, columns: [accuracy, nll], seeds: 2}
stages:
  - name: t1
    title: first
    needs: {corruptions: [fog], ood: [svhn, fashion-mini, gaussian-noise]}
    rows:
      - {label: Dense, cell: dense, method: dense, epochs: 2}
      - {label: Longer, cell: longer, method: dense, epochs: 3, settings: {weight_decay: 0.01}}
  - name: t2
    title: second
    rows:
      - {label: Both, cell: both, method: dense-ensemble, options: {tickets: 2}, epochs: 2, of: dense, seeds: 1}
      - {label: Static, cell: static, method: static, options: {tickets: 2, sparsity: 0.5}, epochs: 1}
"""  # noqa: E501


@pytest.fixture
def tiny():
    return parse_grid(TINY, "tiny")


@pytest.fixture
def runner(tiny, tmp_path):
    return Runner(tiny.scale, tmp_path, str(tmp_path / "no data"))


def test_stages_are_trained_in_order_and_seed_by_seed(tiny):
    names = [task.name for task in tiny.tasks(tiny.experiments)]
    assert names == [
        "dense, seed 0", "longer, seed 0", "dense, seed 1", "longer, seed 1",
        "both, seed 0", "static, seed 0", "static, seed 1",
    ]  # fmt: skip
    assert len(tiny.tasks(tiny.choose(["t1"]), seeds=1)) == 2
    assert [each.name for each in tiny.choose(["t2", "t1"])] == ["t1", "t2"]
    only = tiny.tasks(tiny.experiments, None, ["static"])
    assert [task.cell.name for task in only] == ["static", "static"]


def test_a_cell_has_its_own_settings_and_is_priced_against_the_dense_one(tiny, runner):
    dense, longer, *_, static = tiny.tasks(tiny.experiments, seeds=1)
    config = runner.config(longer)
    assert (config.epochs, config.weight_decay, config.validation) == (3, 0.01, 0.0)
    assert runner.price(dense).relative_flops == pytest.approx(1.0)
    assert runner.price(longer).relative_flops == pytest.approx(1.5)
    # Two members of half the length, each with about half of the weights.
    assert runner.price(static).dense_flops == runner.price(dense).dense_flops
    assert 0.4 < runner.price(static).relative_flops < 0.6


def test_trainings_of_a_cell_become_an_ensemble_without_another_training(tiny, runner):
    tasks = [task for task in tiny.tasks(tiny.experiments) if task.cell.name in ("dense", "both")]
    assert runner.run_all(tasks, CellProgress(quiet=True)) == {}
    results = Results.load(runner.folder)
    logs = [
        Predictions.load(next(path.glob("predictions/*.npz"))).outputs[0].astype(np.float64)
        for path in sorted((runner.folder / "cells" / "dense").iterdir())
    ]
    both = results.records["both", 0]
    answers = read_answers(runner.folder, both)
    mean = np.exp(logs).mean(axis=0)
    assert np.array_equal(answers.predicted[-1], mean.argmax(axis=1))
    assert answers.confidence[-1] == pytest.approx(mean.max(axis=1), abs=1e-4)
    for seed in (0, 1):
        alone = read_answers(runner.folder, results.records["dense", seed])
        assert np.array_equal(answers.predicted[seed], alone.predicted[0])
    seconds = [results.records["dense", seed]["ledger"]["seconds"] for seed in (0, 1)]
    assert both["ledger"]["seconds"] == pytest.approx(sum(seconds))
    assert both["ledger"]["relative_flops"] == pytest.approx(2.0)
    assert not (runner.folder / "cells" / "both" / "0" / "tickets").exists()
    assert all(runner.result(task) is not None for task in tasks)


def test_each_kind_of_set_has_its_own_number_of_images(tiny, runner):
    record = runner.run(tiny.tasks(tiny.experiments)[0])
    metrics = record["metrics"]
    assert metrics["samples"] == 2000
    (shift,) = metrics["shift"].values()
    assert shift["samples"] == 10
    assert metrics["ood"]["gaussian-noise"]["samples"] == 20
    assert set(metrics["ood"]) == {"gaussian-noise"}  # neither its own images nor a stand-in
    assert record["notes"] == ["left out: svhn, which is not in the data folder"]
    unknown = read_answers(runner.folder, Results.load(runner.folder).records["dense", 0]).unknown
    counts = {name: len(each["entropy"]) for name, each in unknown.items()}
    assert counts == {"test": 2000, "gaussian-noise": 20}


def test_the_images_are_the_first_of_each_class(tmp_path):
    part = DataPart("fashion-mini", per_class=6, held_out=4)
    path = SubstituteFiles(tmp_path / "data").dataset(part)
    whole = data.load("fashion-mini", "train")
    train, held = data.load(path, "train"), data.load(path, "test")
    labels = whole.labels.tolist()
    expected = [n for n, label in enumerate(labels) if labels[:n].count(label) < 6]
    assert train.labels.tolist() == [labels[number] for number in expected]
    assert np.array_equal(train.inputs.numpy(), whole.inputs[expected].numpy())
    assert Counter(held.labels.tolist()) == dict.fromkeys(range(10), 4)
    seen, unseen = ({image.tobytes() for image in x.inputs.numpy()} for x in (train, held))
    assert not seen & unseen
    assert data.get_spec(path).test_size == 40


def test_other_images_than_those_of_the_list_are_refused(tmp_path, refused):
    labels = data.load("fashion-mini", "train").labels.numpy()
    right = digest_of(of_each_class(labels, 6))
    assert digest_of(np.array([0, 1, 2, 4])) == "0abf8ac68111cebd"
    files, listed = SubstituteFiles(tmp_path), DataPart("fashion-mini", per_class=6, digest=right)
    both, other = DataPart("fashion-mini", per_class=900, held_out=900), "0" * 16
    files.dataset(listed)
    elsewhere = SubstituteFiles(tmp_path / "other").dataset
    refused("not the images of the list", elsewhere, replace(listed, digest=other))
    refused("some images would be in both", files.dataset, both)
    refused("fewer than 5,000 images", of_each_class, labels, 5000)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("summary:", "sumary:", "did you mean 'summary'"),
        ("real: true", "reel: true", "did you mean 'real'"),
        ("per_class: 6", "per_clas: 6", "did you mean 'per_class'"),
        ("method: static", "method: sttic", "did you mean 'static'"),
        ("weight_decay", "wait_decay", "unknown setting 'wait_decay'"),
        ("of: dense", "of: dens", "did you mean 'dense'"),
        ("dataset: few", "dataset: many", "unknown dataset 'many'"),
        ("cell: longer", "cell: dense", "two cells are called dense"),
        ("stages:", "stages: {", "not valid YAML"),
        ("data: {source", "date: {source", "tiny: unknown key of substitutes.few 'date'"),
    ],
)
def test_a_slip_of_the_pen_is_one_line(old, new, words, refused):
    assert old in TINY
    refused(re.escape(words), parse_grid, TINY.replace(old, new), "tiny")


# ---- the grids that come with FreeTickets


def test_medium_is_the_plan_of_its_issue():
    medium = find_grid("medium")
    counts = {each.name: len(medium.tasks([each])) for each in medium.experiments}
    # 2 data sets x 2 methods x 3 seeds; the same and 2 ensembles; 3 x 3 + 3; 5 x 3; 8.
    assert counts == {"t1": 12, "t2": 14, "t3": 12, "t4": 15, "t5": 8}
    tasks = medium.tasks(medium.experiments)
    assert all(each.needs.corruptions == ("all19",) and each.needs.ood for each in tasks)
    cells = ("cifar10-dense", "cifar10-edst", "cifar100-dense", "cifar100-edst")
    first = [task.name.partition("-")[2] for task in tasks[:4]]
    assert first == [f"{cell}, seed 0" for cell in cells]


def test_a_search_never_sees_a_test_image():
    search = find_grid("search")
    assert all(substitute.data.held_out for substitute in search.scale.substitutes.values())
    sides = Counter(task.cell.method.name for task in search.tasks(search.experiments))
    assert sides["dense"] == sides["edst"] <= 4


def test_search_and_medium_are_of_the_same_network_and_images():
    medium, search = find_grid("medium"), find_grid("search")
    searched, few = search.scale.substitutes["few-cifar10"], medium.scale.substitutes["few-cifar10"]
    assert replace(searched.data, held_out=None) == few.data
    assert searched.recipe == few.recipe
    assert searched.dense_epochs == few.dense_epochs
    models, others = ({row.model for row in g.experiments[0].rows} for g in (search, medium))
    assert models == others


@pytest.mark.parametrize("name", grid_names())
def test_every_task_can_be_priced(name, tmp_path):
    grid = find_grid(name)
    runner = Runner(grid.scale, tmp_path)
    costs = {task.cell.name: runner.price(task) for task in grid.tasks(grid.experiments, seeds=1)}
    assert all(price.flops > 0 for price in costs.values())
    if name == "medium":
        for cell in ("few-cifar10-edst", "few-cifar100-edst", "many-cifar10-edst"):
            epochs = sum(phase.epochs for phase in costs[cell].phases)
            assert epochs == pytest.approx(1.8 * costs[cell].dense_epochs)


def test_lengths_that_are_not_measured_are_those_of_provisional_stages():
    text = Path(__file__).parents[2] / "src/freetickets/experiments/grids/medium.yaml"
    told = yaml.safe_load(text.read_text())
    provisional = [each["name"] for each in told["stages"] if each.get("provisional")]
    assert bool(provisional) == ("TO MEASURE" in text.read_text())


def test_the_lists_of_medium_are_those_of_the_published_files():
    root = os.environ.get("FREETICKETS_DATA")
    for substitute in find_grid("medium").scale.substitutes.values():
        try:
            whole = data.load(substitute.data.source, "train", root, download=False)
        except FreeTicketsError:
            pytest.skip(f"{substitute.data.source} is not here (FREETICKETS_DATA)")
        numbers = of_each_class(whole.labels.numpy(), int(substitute.data.per_class or 0))
        assert digest_of(numbers) == substitute.data.digest


# ---- the paper's tables: every piece of work is there, and there once

ALL = [load(name) for name in experiment_names()]


def test_cells_are_shared_and_first_seeds_come_first_with_all_needs():
    tasks, wanted = make_tasks(ALL, SCALES["paper"]), needed(ALL)
    assert len({(task.cell, task.seed) for task in tasks}) == len(tasks) == 71 + 2 * 32
    assert {task.cell for task in tasks} == set(wanted)
    seeds = [task.seed for task in tasks]
    assert seeds == sorted(seeds)
    for task in tasks:
        if task.seed == 0:
            assert task.needs == wanted[task.cell]
        else:  # only the main tables have more
            assert not task.needs.attacks
            assert task.needs.corruptions == ("all19",)
    known = {task.cell: {None, *task.members} for task in tasks if task.seed == 0}
    rows = [row for experiment in ALL for row in experiment.rows]
    assert all(row.members in known[cell] for row in rows for cell in row.cells)


def test_seeds_and_methods_can_be_chosen():
    tasks = make_tasks([load("fgsm")], SCALES["smoke"], seeds=4, only=["edst", "dst"])
    assert {task.cell.method.name for task in tasks} == {"edst", "dst"}
    assert sorted({task.seed for task in tasks}) == [0, 1, 2, 3]
