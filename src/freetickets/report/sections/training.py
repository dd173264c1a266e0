"""How the runs were trained: curves, phases, layers, settings."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from ..comparison import Comparison, flops_text
from ..figures.breakdowns import layer_densities
from ..figures.training import training_curves
from ..parts import Details, Figure, Section, Table, TableCell


def training_sections(comparison: Comparison) -> Iterator[Section]:
    """How each run was trained."""
    for number, run in enumerate(comparison.runs):
        caption = (
            f"{run.description}: loss and {run.results.task.running.title} at the end of each "
            "epoch, on the training samples as they were seen and on the held-out samples. Shading "
            "and names show the phases, diamonds the tickets where they were collected"
        )
        if any(row.has("escape") for row in run.log):
            caption += ", dashed lines the escapes"
        caption += ". Below: the learning rate (lr)"
        if any(row.itop_rate is not None for row in run.log):
            caption += ", and the share of all weights that were active at any time so far"
            caption += " (explored)"
        key = f"training-{number + 1}"
        figure = Figure(training_curves(run, number), key)
        yield Section(f"Training of {run.name}", f"{caption}.", figure, key)


def layers_section(comparison: Comparison) -> Iterator[Section]:
    """Which layers hold the weights."""
    layers = {
        run.name: [(each.name, fmean(each.density)) for each in run.results.layers]
        for run in comparison.runs
        if run.results.layers
    }
    caption = (
        "The share of its weights that each layer keeps, the mean over tickets. Layers that the "
        "distribution leaves dense have 100%."
    )
    figure = Figure(layer_densities(layers, comparison.names), "layers")
    yield Section("Density of the layers", caption, figure, "layers")


def phases_section(comparison: Comparison) -> Iterator[Section]:
    """What each phase of each run cost."""
    header = ["run", "network", "phase", "epochs", "steps", "sparsity", "explorations", "FLOPs ×"]
    rows = [
        [
            TableCell(run.name),
            TableCell.of(phase.run, "d"),
            TableCell(phase.phase),
            TableCell.of(phase.epochs, "g"),
            TableCell.of(phase.steps, ",d"),
            TableCell.of(phase.sparsity, "g"),
            TableCell.of(phase.explorations, ",d"),
            TableCell.of(phase.flops / run.ledger.dense_flops, ".3f"),
            TableCell.of(phase.seconds, ",.1f"),
        ]
        for run in comparison.runs
        for phase in run.ledger.phases
    ]
    caption = (
        f"{flops_text(comparison.runs)} Explorations leave out the escapes between phases. "
        "Networks are those that a run trains from scratch, one after the other."
    )
    yield Section("Phases and their cost", caption, Table([*header, "seconds"], rows), "phases")


def settings_section(comparison: Comparison) -> Iterator[Section]:
    """What each run was."""
    items = [
        (f"{run.name}: {run.description}, {run.config.model}", run.config.as_yaml())
        for run in comparison.runs
    ]
    caption = "All settings of each run; saved as a file, they repeat it: train --config FILE."
    yield Section("Settings", caption, Details(items), "settings")
