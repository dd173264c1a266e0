"""The gallery: figures of the runs of a table, where their folders are there."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from ..errors import UnknownNameError
from ..report.colours import colour
from ..report.comparison import Comparison, analyse, find_reference
from ..report.parts import Figure, Section
from ..report.run import check_predictions_alike, read_run
from ..report.sections import make
from .experiment import Cell, Experiment
from .results import Results

# Which parts of a report are figures; what is in the others stands in the table already.
_FIGURES = (
    "cost", "members", "ensemble-size", "sparsity", "disagreement", "classes", "features",
    "trajectories", "reliability", "risk-coverage", "roc", "novelty", "severity",
    "corruption-types", "attack-fgsm", "transfer-fgsm", "layers",
)  # fmt: skip
# How the panels of a figure stand in its file.
_ABREAST, _GAP = 2, 18


class Gallery:
    """Draws the figures of tables; a run that several of them show is read and analysed once.

    `wanted` are the keys of the figures that are drawn; None for all.
    """

    def __init__(self, results: Results, wanted: Collection[str] | None = None) -> None:
        self._results = results
        for key in wanted or ():
            if key not in _FIGURES:
                raise UnknownNameError("figure", key, _FIGURES)
        self._wanted = _FIGURES if wanted is None else wanted
        self._read = cache(read_run)
        self._analyse = cache(lambda folder: analyse(self._read(folder)))

    def sections(self, experiment: Experiment) -> list[Section]:
        """The figures of a table, each data set for itself; of the first seed that is there."""
        datasets = list(dict.fromkeys(row.dataset for row in experiment.rows))
        keys = [key for key in experiment.figures if key in _FIGURES and key in self._wanted]
        found = []
        for dataset in datasets:
            where = [dataset] if len(datasets) > 1 else []
            comparison = self._compare(experiment, dataset)
            for key in keys:
                section = None if comparison is None else make(comparison, key)
                if section is not None and isinstance(section.body, Figure):
                    figure = replace(section.body, name="-".join([experiment.name, *where, key]))
                    title = f"{section.title} ({', '.join([experiment.paper, *where])})"
                    found.append(replace(section, title=title, body=figure, key=""))
        return found

    def _compare(self, experiment: Experiment, dataset: str) -> Comparison | None:
        runs = []
        for name, cell in run_names(experiment, dataset).items():
            folders = (self._results.run_folder(cell, seed) for seed in self._results.seeds(cell))
            if (folder := next(filter(None, folders), None)) is not None:
                # The name says all that a description would.
                runs.append(replace(self._read(folder), name=name, description=""))
        if not runs:
            return None
        check_predictions_alike(runs)
        found = {run.name: self._analyse(run.folder) for run in runs}
        analyses = {name: each for name, each in found.items() if each is not None}
        return Comparison(runs, find_reference(runs), analyses)


def run_names(experiment: Experiment, dataset: str) -> dict[str, Cell]:
    """The cells of a table by what it calls them: of several rows of one, the largest ensemble.

    Names are shorter than in the table, for figures have little room: "EDST (M=3, S=0.8)".
    """
    names: dict[Cell, str] = {}
    rows = [row for row in experiment.rows if row.dataset == dataset]
    for row in sorted(rows, key=lambda row: row.members or 1000, reverse=True):
        for cell in row.cells:
            values = [f"{option}={cell.options[option]:g}" for option in row.over]
            label = re.sub(" (Sparse )?Ensemble", "", row.label).replace(") (", ", ")
            names.setdefault(cell, " ".join([label, *values]))
    order = list(dict.fromkeys(cell for row in rows for cell in row.cells))
    return {names[cell]: cell for cell in order}


def standalone(panels: Sequence[str]) -> str:
    """The panels of a figure as one file: two side by side, at their natural size and on white."""
    sizes = [_size(panel) for panel in panels]
    placed, top = [], 0.0
    for start in range(0, len(panels), _ABREAST):
        row = slice(start, start + _ABREAST)
        left = 0.0
        for panel, (width, height) in zip(panels[row], sizes[row], strict=True):
            place = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"'
            placed.append(panel.replace("<svg ", f"<svg {place} ", 1))
            left += width + _GAP
        top += max(height for _, height in sizes[row]) + _GAP
    columns = min(_ABREAST, len(panels))
    whole = columns * (max(width for width, _ in sizes) + _GAP) - _GAP, top - _GAP
    across, down = (f"{length:g}" for length in whole)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" '
        f'width="{across}pt" height="{down}pt">'
        f'<rect width="{across}" height="{down}" fill="{colour("page")}"/>'
    )
    return re.sub(r"var\(--[\w-]+, ([^()]*)\)", r"\1", f"{head}{''.join(placed)}</svg>")


def _size(panel: str) -> tuple[float, float]:
    box = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', panel)
    assert box is not None, "figures are drawn with a viewBox"
    return float(box[1]), float(box[2])
