"""The tables that commands print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from ..config import Config
from ..data import DatasetSpec
from ..methods import PRESETS
from ..training.ledger import Ledger


def print_scores(scores: Mapping[str, Any]) -> None:
    """Prints the scores of the members, of their mean and of the ensemble."""
    table = Table(title=f"{scores['dataset']}, {scores['samples']:,} test samples")
    for column in ("", "accuracy", "NLL", "ECE"):
        table.add_column(column, justify="left" if not column else "right")
    several = len(scores["members"]) > 1
    for number, row in enumerate(scores["members"], start=1):
        table.add_row(f"member {number}", *_cells(row))
    if several:
        table.add_row("member mean", *_cells(scores["member_mean"]), end_section=True)
        table.add_row("ensemble", *_cells(scores["ensemble"]), style="bold")
    adjusted = scores.get("adjusted")
    if adjusted:
        table.add_row("adjusted", *_cells(adjusted["ensemble"]), style="bold")
    _print(table)
    if adjusted:
        chosen = f"members {', '.join(map(str, adjusted['chosen']))}"
        print(f"adjusted on held-out data: {chosen}, {_temperature(adjusted['temperature'])}")


def print_cost(ledger: Mapping[str, Any]) -> None:
    """Prints what a run has cost."""
    print(
        f"training FLOPs {ledger['relative_flops']:.3f}x of one dense model of "
        f"{ledger['dense_epochs']:g} epochs (+ {ledger['relative_growth_flops']:.4f}x for growth), "
        f"test FLOPs {ledger['relative_test_flops']:.3f}x, {ledger['seconds']:.0f} s in training "
        f"steps"
    )


def print_plan(config: Config, spec: DatasetSpec, ledger: Ledger) -> None:
    """Prints the phases of a plan and what they cost."""
    title = f"{config.method}: {config.model} on {spec.name}, batch {config.batch_size}"
    table = Table(title=title)
    for column in ("run", "phase", "epochs", "steps", "sparsity", "explorations", "FLOPs", "x"):
        table.add_column(column, justify="left" if column == "phase" else "right")
    for phase in ledger.phases:
        table.add_row(
            str(phase.run),
            phase.phase,
            f"{phase.epochs:g}",
            f"{phase.steps:,}",
            f"{phase.sparsity:g}",
            str(phase.explorations),
            f"{phase.flops:.3e}",
            f"{phase.flops / ledger.dense_flops:.3f}",
        )
    _print(table)
    print(f"training FLOPs   {ledger.flops:.3e}  {ledger.relative_flops:.3f}x of one dense model")
    print(
        f"                 (dense: {ledger.dense_epochs:g} epochs, {ledger.dense_flops:.3e}; "
        f"growth adds {ledger.relative_growth_flops:.4f}x)"
    )
    print(f"training runs    {ledger.runs:g}")
    print(f"test FLOPs       {ledger.test_flops:.3e}  {ledger.relative_test_flops:.3f}x")
    print(
        f"members          {ledger.members} in {_count(ledger.tickets, 'network')} of "
        f"{ledger.ticket_parameters:,} parameters (the dense one has {ledger.parameters:,}), "
        f"{ledger.ticket_bytes / 1e6:.1f} MB in all"
    )
    print(f"preset           {config.preset}: {PRESETS[config.preset]}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _temperature(saved: Mapping[str, Any] | None) -> str:
    if saved is None:
        return "no temperature"
    values = ", ".join(f"{value:.3f}" for value in saved["values"])
    return f"temperature {values} ({saved['scope']})"


def _cells(row: Mapping[str, float]) -> list[str]:
    return [f"{row['accuracy']:.2%}", f"{row['nll']:.4f}", f"{row['ece']:.4f}"]


def _print(table: Table) -> None:
    Console(highlight=False).print(table)
