"""How the runs were trained: curves, phases, layers, settings."""

from __future__ import annotations

from statistics import fmean

from ..figures import layer_densities, training_curves
from ..parts import Cell, Details, Figure, Section, Table
from ..run import RunSummary
from .comparison import Comparison, flops_text

CHAPTER = "Training"


def training_sections(comparison: Comparison) -> list[Section]:
    """How each run was trained."""
    return [_training(run, number) for number, run in enumerate(comparison.runs)]


def _training(run: RunSummary, number: int) -> Section:
    caption = (
        f"{run.description}: loss and {run.task.running.title} at the end of each epoch, on the "
        "training samples as they were seen and on the held-out samples. Shading and names show "
        "the phases, diamonds the tickets where they were collected"
    )
    if any(row.has("escape") for row in run.log):
        caption += ", dashed lines the escapes"
    caption += ". Below: the learning rate (lr)"
    if any(row.itop_rate is not None for row in run.log):
        caption += ", and the share of all weights that were active at any time so far (explored)"
    key = f"training-{number + 1}"
    figure = Figure(training_curves(run, number), key)
    return Section(f"Training of {run.name}", caption + ".", figure, key, CHAPTER)


def layers_section(comparison: Comparison) -> list[Section]:
    """Which layers hold the weights."""
    layers = {
        run.name: [(each.name, fmean(each.density)) for each in run.results.layers]
        for run in comparison.runs
        if run.results.layers
    }
    if not layers:
        return []
    caption = (
        "The share of its weights that each layer keeps, the mean over tickets. Layers that the "
        "distribution leaves dense have 100%."
    )
    figure = Figure(layer_densities(layers, comparison.names), "layers")
    return [Section("Density of the layers", caption, figure, "layers", CHAPTER)]


def phases_section(comparison: Comparison) -> list[Section]:
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
            Cell.of(phase.flops / run.ledger.dense_flops, ".3f"),
            Cell(f"{phase.seconds:,.1f}", phase.seconds),
        ]
        for run in comparison.runs
        for phase in run.ledger.phases
    ]
    caption = (
        f"{flops_text(comparison.runs)} Explorations leave out the escapes between phases. "
        "Networks are those that a run trains from scratch, one after the other."
    )
    return [Section("Phases and their cost", caption, Table(header, rows), "phases", CHAPTER)]


def settings_section(comparison: Comparison) -> list[Section]:
    """What each run was."""
    items = [
        (f"{run.name}: {run.description}, {run.config.model}", run.config.as_yaml())
        for run in comparison.runs
    ]
    caption = "All settings of each run; saved as a file, they repeat it: train --config FILE."
    return [Section("Settings", caption, Details(items), "settings", CHAPTER)]
