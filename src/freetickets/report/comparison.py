"""Runs side by side: what the sections of a page are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError
from .analysis import Analysis, analyse
from .run import RunSummary
from .tables import kind_of


@dataclass(frozen=True)
class Comparison:
    """Runs side by side, with the analyses of those whose predictions are saved, by name."""

    runs: Sequence[RunSummary]
    reference: RunSummary
    analyses: Mapping[str, Analysis]

    @classmethod
    def of(cls, runs: Sequence[RunSummary], reference: str | None = None) -> Comparison:
        """Analyses runs; see `find_reference` for the reference."""
        analyses = {run.name: analysis for run in runs if (analysis := analyse(run)) is not None}
        return cls(runs, find_reference(runs, reference), analyses)

    def each(self, part: str) -> dict[str, Any]:
        """A part of each analysis, by the name of the run; of those that have it."""
        found = {name: getattr(analysis, part) for name, analysis in self.analyses.items()}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def has_classes(self) -> bool:
        """Whether the task of the runs has classes, which many sections are about."""
        return self.runs[0].results.task.has_classes

    @property
    def names(self) -> list[str]:
        """Of all runs: figures that show some of them keep the colour of each."""
        return [run.name for run in self.runs]


def find_reference(runs: Sequence[RunSummary], wanted: str | None = None) -> RunSummary:
    """The run that others are compared with: the one that is wanted, by its name or its folder.

    By default it is the first single dense model, or the first run.
    """
    if wanted is None:
        return next((run for run in runs if kind_of(run) == "dense"), runs[0])
    for run in runs:
        if wanted == run.name or Path(wanted).resolve() == run.folder.resolve():
            return run
    raise FreeTicketsError(
        f"the reference {wanted!r} is not one of the runs: give one of "
        f"{', '.join(run.name for run in runs)}"
    )


def flops_text(runs: Sequence[RunSummary]) -> str:
    """What FLOPs count, and what they are a multiple of."""
    counted = "FLOPs are counted as RigL does (3 × forward a sample, each layer by its density)"
    ledger, model = runs[0].ledger, runs[0].config.model
    # A product of fractions of epochs: its last digits depend on the plan.
    if len({f"{run.ledger.dense_flops:.6g}" for run in runs}) == 1:
        return (
            f"{counted}, as multiples of one dense training of {model} for "
            f"{ledger.dense_epochs:g} epochs ({ledger.dense_flops:.2g} FLOPs)."
        )
    return (
        f"{counted}, as multiples of one dense training of each run's own model and length: these "
        "differ here, so that multiples of different runs can't be compared."
    )
