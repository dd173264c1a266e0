"""The gallery: names of runs, and figures as files."""

from itertools import combinations
from xml.etree import ElementTree

import pytest

from freetickets.experiments import experiment_names, load
from freetickets.experiments.figures import Gallery, run_names, standalone

from .invented import invent_results

ALL = [load(name) for name in experiment_names()]


@pytest.mark.parametrize("experiment", ALL, ids=lambda experiment: experiment.name)
def test_every_run_of_a_figure_has_a_name_of_its_own(experiment):
    for dataset in {row.dataset for row in experiment.rows}:
        cells = {c for row in experiment.rows if row.dataset == dataset for c in row.cells}
        assert set(run_names(experiment, dataset).values()) == cells
    names = list(run_names(load("cifar10"), "cifar10"))
    assert names[3:9:5] == ["EDST (M=3, S=0.8)", "Static (M=3, S=0.8)"]


def test_without_run_folders_there_are_no_figures():
    results = invent_results(ALL, lambda cell, seed: {})
    assert all(Gallery(results).sections(experiment) == [] for experiment in ALL)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_panels_lie_within_their_file_and_apart(count):
    panels = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 {10 + 7 * (number % 3)}"></svg>'
        for number in range(count)
    ]
    root = ElementTree.fromstring(standalone(panels))
    _, _, width, height = map(float, root.get("viewBox").split())
    boxes = []
    for panel in root.findall("{http://www.w3.org/2000/svg}svg"):
        left, top, wide, high = (float(panel.get(key)) for key in ("x", "y", "width", "height"))
        assert left + wide <= width
        assert top + high <= height
        boxes.append((left, top, left + wide, top + high))
    assert len(boxes) == count
    for one, other in combinations(boxes, 2):
        beside = one[0] >= other[2] or other[0] >= one[2]
        assert beside or one[1] >= other[3] or other[1] >= one[3]
