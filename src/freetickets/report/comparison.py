"""The comparison of runs: the sections of the page that `freetickets report` writes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Sequence

from .. import __version__
from ..metrics import ece
from .figures import cost_against_quality, members_and_ensembles, training_curves
from .page import Page
from .parts import Cell, Details, Figure, Section, Table
from .run import RunSummary, Scores
from .tables import COLUMNS, make_rows

_ECE_BINS = inspect.signature(ece).parameters["bins"].default


def comparison_page(runs: Sequence[RunSummary]) -> Page:
    """A page that shows runs side by side.

    Raises:
        MissingExtraError: Figures can't be drawn, for matplotlib is not installed.
    """
    first = runs[0]
    count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    models = ", ".join(dict.fromkeys(run.config.model for run in runs))
    return Page(
        f"{first.dataset}: {count}",
        f"{models}, scored on {first.samples:,} test samples. Made by FreeTickets {__version__}.",
        [
            comparison_section(runs),
            cost_section(runs),
            members_section(runs),
            member_scores_section(runs),
            *(training_section(run, number) for number, run in enumerate(runs)),
            phases_section(runs),
            settings_section(runs),
        ],
    )


def comparison_section(runs: Sequence[RunSummary]) -> Section:
    """The main table."""
    rows = make_rows(runs)
    best = {column.key: column.best(rows) for column in COLUMNS}
    cells = [
        [
            Cell(row.run),
            Cell(row.description),
            *(
                Cell(text, column.value(row), best=text == best[column.key])
                for column in COLUMNS
                for text in [column.text(row)]
            ),
        ]
        for row in rows
    ]
    groups = [
        (group, len(list(columns)))
        for group, columns in itertools.groupby(COLUMNS, key=lambda column: column.group)
    ]
    header = ["run", "method", *(column.title for column in COLUMNS)]
    caption = (
        f"Scores on the {runs[0].samples:,} test samples of {runs[0].dataset}. Member mean: the "
        "mean of what the members score alone; ensemble: what their joint prediction scores. NLL "
        "is the mean negative log-likelihood in nats; ECE is the expected calibration error over "
        f"{_ECE_BINS} equal bins of confidence. {_flops_text(runs)} Growth, the dense gradients "
        "that explorations look at, is not part of training FLOPs. Test FLOPs are those of one "
        "prediction by all members. Seconds are those in training steps; MB are all members on "
        "disk. The best of each column is in bold."
    )
    return Section("Comparison", caption, Table(header, cells, [("", 2), *groups]))


def cost_section(runs: Sequence[RunSummary]) -> Section:
    """What each run took to train, and how good it became."""
    caption = (
        "Diamonds are ensembles (or single networks), circles the mean of their members; the line "
        f"between them is what combining the members brings. {_flops_text(runs)} The dashed line "
        "is one dense training."
    )
    return Section("Cost against quality", caption, Figure(cost_against_quality(runs)))


def members_section(runs: Sequence[RunSummary]) -> Section:
    """What the members score alone and together."""
    caption = (
        f"Each member alone, the mean of the members, and the ensemble, on the "
        f"{runs[0].samples:,} test samples. A run of one network has one point."
    )
    return Section("Members and ensemble", caption, Figure(members_and_ensembles(runs)))


def member_scores_section(runs: Sequence[RunSummary]) -> Section:
    """The same in numbers."""
    rows = []
    for run in runs:
        parts: list[tuple[str, Scores]] = [
            (f"member {number}", scores) for number, scores in enumerate(run.members, start=1)
        ]
        if len(run.members) > 1:
            parts += [("member mean", run.member_mean), ("ensemble", run.ensemble)]
        rows += [[Cell(run.name), Cell(name), *_score_cells(scores)] for name, scores in parts]
    caption = "The numbers behind the figure above; members are in the order of their collection."
    return Section(
        "Scores of every member",
        caption,
        Table(["run", "predictor", "accuracy", "NLL", "ECE"], rows),
    )


def training_section(run: RunSummary, number: int) -> Section:
    """How one run was trained."""
    caption = (
        f"{run.description}: loss and accuracy at the end of each epoch, on the training samples "
        "as they were seen and on the held-out samples. Shading and names show the phases, "
        "diamonds the tickets where they were collected"
    )
    if any(row.has("escape") for row in run.log):
        caption += ", dashed lines the escapes"
    caption += ". Below: the learning rate (lr)"
    if any(row.itop_rate is not None for row in run.log):
        caption += ", and the share of all weights that were active at any time so far (explored)"
    return Section(f"Training of {run.name}", caption + ".", Figure(training_curves(run, number)))


def phases_section(runs: Sequence[RunSummary]) -> Section:
    """What each phase of each run cost."""
    header = [
        "run", "network", "phase", "epochs", "steps", "sparsity", "explorations", "FLOPs ×",
        "seconds",
    ]  # fmt: skip
    rows = [
        [
            Cell(run.name),
            Cell(str(phase.run), phase.run),
            Cell(phase.phase),
            Cell(f"{phase.epochs:g}", phase.epochs),
            Cell(f"{phase.steps:,}", phase.steps),
            Cell(f"{phase.sparsity:g}", phase.sparsity),
            Cell(f"{phase.explorations:,}", phase.explorations),
            Cell(f"{phase.flops / run.ledger.dense_flops:.3f}", phase.flops),
            Cell(f"{phase.seconds:,.1f}", phase.seconds),
        ]
        for run in runs
        for phase in run.ledger.phases
    ]
    caption = (
        f"{_flops_text(runs)} Explorations leave out the escapes between phases. Networks are "
        "those that a run trains from scratch, one after the other."
    )
    return Section("Phases and their cost", caption, Table(header, rows))


def settings_section(runs: Sequence[RunSummary]) -> Section:
    """What each run was."""
    items = [
        (f"{run.name}: {run.description}, {run.config.model}", run.config.as_yaml()) for run in runs
    ]
    caption = "All settings of each run; saved as a file, they repeat it: train --config FILE."
    return Section("Settings", caption, Details(items))


def _score_cells(scores: Scores) -> list[Cell]:
    return [
        Cell(f"{scores.accuracy:.2%}", scores.accuracy),
        Cell(f"{scores.nll:.4f}", scores.nll),
        Cell(f"{scores.ece:.4f}", scores.ece),
    ]


def _flops_text(runs: Sequence[RunSummary]) -> str:
    """What FLOPs count, and what they are a multiple of."""
    counted = "FLOPs are counted as RigL does (3 × forward a sample, each layer by its density)"
    epochs, model = runs[0].ledger.dense_epochs, runs[0].config.model
    if len({run.ledger.dense_flops for run in runs}) == 1:
        return f"{counted}, as multiples of one dense training of {model} for {epochs:g} epochs."
    return (
        f"{counted}, as multiples of one dense training of each run's own model and length: these "
        "differ here, so that multiples of different runs can't be compared."
    )
