"""The gallery: figures of the runs of a table, where their folders are there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..report.analysis import Analysis, analyse
from ..report.colours import colour
from ..report.parts import Figure, Section
from ..report.run import RunSummary, check_predictions_alike, read_run
from ..report.sections import diversity, main, members, robustness, training, uncertainty
from ..report.sections.comparison import Comparison, find_reference
from .cell import Cell
from .experiment import Experiment
from .results import Results

# Which parts of a report are figures; what is in the others stands in the table already.
_MAKERS: dict[str, Callable[[Comparison], list[Section]]] = {
    "cost": main.cost_section,
    "members": members.members_section,
    "ensemble-size": members.sizes_section,
    "sparsity": members.sparsity_section,
    "disagreement": diversity.heatmaps_section,
    "classes": diversity.classes_section,
    "features": diversity.features_section,
    "trajectories": diversity.trajectories_section,
    "reliability": uncertainty.reliability_section,
    "risk-coverage": uncertainty.risk_section,
    "roc": uncertainty.roc_section,
    "novelty": uncertainty.histograms_section,
    "severity": robustness.severity_section,
    "corruption-types": robustness.types_section,
    "attack-fgsm": robustness.attack_bars_section,
    "transfer-fgsm": robustness.transfer_section,
    "layers": training.layers_section,
}


class Gallery:
    """Draws the figures of tables; a run that several of them show is read and analysed once."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._runs: dict[Path, RunSummary] = {}
        self._analyses: dict[Path, Analysis | None] = {}

    def sections(self, experiment: Experiment) -> list[Section]:
        """The figures of a table, each data set for itself; of the first seed that is there."""
        datasets = list(dict.fromkeys(row.dataset for row in experiment.rows))
        found = []
        for dataset in datasets:
            comparison = self._compare(experiment, dataset)
            if comparison is None:
                continue
            title = f" ({dataset})" if len(datasets) > 1 else ""
            for key in experiment.figures:
                for section in _MAKERS[key](comparison) if key in _MAKERS else ():
                    if section.key != key or not isinstance(section.body, Figure):
                        continue
                    words = [experiment.name, *([dataset] if title else []), key]
                    figure = replace(section.body, name="-".join(words))
                    found.append(replace(section, title=section.title + title, body=figure, key=""))
        return found

    def _compare(self, experiment: Experiment, dataset: str) -> Comparison | None:
        runs = []
        for name, cell in run_names(experiment, dataset).items():
            folder = self._folder(cell)
            if folder is not None:
                runs.append(replace(self._read(folder), name=name))
        if not runs:
            return None
        check_predictions_alike(runs)
        analyses = {run.name: found for run in runs if (found := self._analyse(run)) is not None}
        return Comparison(runs, find_reference(runs), analyses)

    def _folder(self, cell: Cell) -> Path | None:
        folders = (self._results.run_folder(cell, seed) for seed in self._results.seeds(cell))
        return next((folder for folder in folders if folder is not None), None)

    def _read(self, folder: Path) -> RunSummary:
        if folder not in self._runs:
            self._runs[folder] = read_run(folder)
        return self._runs[folder]

    def _analyse(self, run: RunSummary) -> Analysis | None:
        if run.folder not in self._analyses:
            self._analyses[run.folder] = analyse(run)
        return self._analyses[run.folder]


def run_names(experiment: Experiment, dataset: str) -> dict[str, Cell]:
    """The cells of a table by what it calls them: of several rows of one, the largest ensemble."""
    names: dict[Cell, str] = {}
    rows = [row for row in experiment.rows if row.dataset == dataset]
    for row in sorted(rows, key=lambda row: row.members or 1000, reverse=True):
        for cell in row.cells:
            values = [f"{option}={cell.options[option]:g}" for option in row.over]
            names.setdefault(cell, " ".join([row.label, *values]))
    order = list(dict.fromkeys(cell for row in rows for cell in row.cells))
    return {names[cell]: cell for cell in order}


def standalone(panel: str) -> str:
    """A panel as a file of its own, at its natural size and on white.

    Example:
        >>> svg = '<svg viewBox="0 0 20 10"><path style="fill: var(--blue, #0072b2)"/></svg>'
        >>> standalone(svg)[25:]
        'width="20pt" height="10pt"><rect width="20" height="10" fill="#ffffff"/><path \
style="fill: #0072b2"/></svg>'
    """
    plain = re.sub(r"var\(--[\w-]+, ([^()]*)\)", r"\1", panel)
    box = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', plain)
    if box is None:
        return plain
    width, height = box.groups()
    head, end, rest = plain.partition(">")
    ground = f'<rect width="{width}" height="{height}" fill="{colour("page")}"/>'
    return f'{head} width="{width}pt" height="{height}pt"{end}{ground}{rest}'
