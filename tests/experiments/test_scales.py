"""Scales keep the paper's proportions."""

from dataclasses import replace

import pytest

from freetickets.experiments import Cell, experiment_names, load, needed
from freetickets.experiments.scales import SCALES, DataPart, Substitute
from freetickets.methods import DST, EDST, LTR, Dense

CELLS = list(needed(map(load, experiment_names())))
SHORT = [SCALES["smoke"], SCALES["small"]]


def plan_of(config):
    return config.make_method().plan(config.setting())


@pytest.mark.parametrize("scale", SHORT, ids=lambda scale: scale.name)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_every_phase_has_the_papers_share_of_a_dense_training(cell, scale):
    substitute = scale.substitutes[cell.dataset]
    short, whole = plan_of(scale.config(cell, 0)), plan_of(SCALES["paper"].config(cell, 0))
    assert short.dense_epochs == pytest.approx(substitute.dense_epochs)
    factor = short.dense_epochs / whole.dense_epochs
    for mine, papers in zip(short.runs, whole.runs, strict=True):
        for phase, original in zip(mine.phases, papers.phases, strict=True):
            assert (phase.name, phase.sparsity) == (original.name, original.sparsity)
            assert phase.epochs == pytest.approx(factor * original.epochs)
            lengths = [stretch.epochs for stretch in original.schedule]
            assert [stretch.epochs for stretch in phase.schedule] == pytest.approx(
                [factor * length for length in lengths]
            )


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_paper_scale_changes_nothing(cell):
    config = SCALES["paper"].config(cell, 0)
    assert (config.dataset, config.model) == (cell.dataset, cell.model)
    assert config.make_method() == cell.method
    assert (config.epochs, config.lr, config.batch_size) == (None, None, None)
    assert config.recipe == ("imagenet" if cell.dataset == "imagenet" else "cifar")
    recorded = SCALES["paper"].config(cell, 0, trajectory=True)
    assert (config.trajectory, recorded.trajectory) == (0, 1)


def test_the_interval_is_the_stands_unless_the_cell_has_one():
    substitute = Substitute(DataPart("fashion-mini"), "cifar", interval=7)
    for method in (EDST(), DST(), LTR()):
        assert substitute.options(Cell("cifar10", "wrn-28-10", method))["interval"] == 7
    own = Cell("cifar10", "wrn-28-10", EDST(interval=20))
    assert substitute.options(own)["interval"] == 20
    assert "interval" not in substitute.options(Cell("cifar10", "wrn-28-10", Dense()))


def test_seeds_of_one_cell_share_no_training():
    cell = Cell("cifar10", "wrn-28-10", DST(tickets=7))
    seeds = [
        run.seed for seed in range(3) for run in plan_of(SCALES["small"].config(cell, seed)).runs
    ]
    assert len(seeds) == len(set(seeds)) == 21


def test_seeds_are_the_experiments_up_to_the_scales_most():
    assert [SCALES[name].seeds(load("cifar10")) for name in SCALES] == [2, 3, 3]
    assert [SCALES[name].seeds(load("fgsm")) for name in SCALES] == [1, 1, 1]


def test_data_tell_their_parts():
    assert DataPart("cifar10").is_whole
    part = DataPart("cifar10", train=50, test=20, pool=2)
    assert not part.is_whole
    told = "cifar10: the first 50 training images, the first 20 test images, pooled 2x2"
    assert part.text == told
    each = DataPart("cifar10", per_class=500).text
    assert each == "cifar10: the first 500 training images of each class"
    numbers = {"train": 51, "test": 21, "pool": 4, "per_class": 3, "held_out": 3}
    others = {replace(part, **{name: number}).file for name, number in numbers.items()}
    assert len({part.file, *others}) == 6
