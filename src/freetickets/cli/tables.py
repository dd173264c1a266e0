"""The tables that commands print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from ..config import Config
from ..data import DatasetSpec
from ..evaluation.results import Evaluation
from ..methods import PRESETS
from ..tasks import CLASSIFICATION, Score
from ..training.ledger import Ledger

_OF_CLASSES = CLASSIFICATION.scores
_TITLES = [score.title for score in _OF_CLASSES]


def print_scores(scores: Mapping[str, Any]) -> None:
    """Prints the scores of the members, of their mean and of the ensemble."""
    table = Table(title=f"{scores['dataset']}, {scores['samples']:,} test samples")
    table.add_column("")
    main = Evaluation.of(scores)
    shown = main.task.scores
    for score in shown:
        table.add_column(score.title, justify="right")
    several = len(scores["members"]) > 1
    for number, row in enumerate(scores["members"], start=1):
        table.add_row(f"member {number}", *_cells(row, shown))
    if several:
        table.add_row("member mean", *_cells(scores["member_mean"], shown), end_section=True)
        table.add_row("ensemble", *_cells(scores["ensemble"], shown), style="bold")
    adjusted = scores.get("adjusted")
    if adjusted:
        table.add_row("adjusted", *_cells(adjusted["ensemble"], shown), style="bold")
    _print(table)
    if adjusted:
        chosen = f"members {', '.join(map(str, adjusted['chosen']))}"
        print(f"adjusted on held-out data: {chosen}, {_temperature(adjusted['temperature'])}")


def print_suite(scores: Mapping[str, Any]) -> None:
    """Prints one table for each part of an evaluation that was asked for."""
    tables = [
        *_corruption_tables(scores.get("shift", {})),
        _natural_table(scores.get("natural", {})),
        _ood_table(scores.get("ood", {})),
        _attack_table(scores.get("attacks", {})),
        _diversity_table(scores),
    ]
    for table in tables:
        if table is not None and table.row_count:
            _print(table)


def _corruption_tables(shift: Mapping[str, Any]) -> Iterator[Table]:
    for name, part in shift.items():
        frost = ", synthetic frost" if part.get("frost") == "synthetic" else ""
        title = f"{name}: {part['source']}{frost}, {part['samples']:,} samples each"
        table = _table(title, "mean of", *_TITLES, "ECE pooled")
        for chosen, row in part["means"].items():
            name = _count(len(part["types"]), "type") if chosen == "given" else chosen
            table.add_row(name, *_cells(row), _number(row["ece_pooled"]))
        yield table


def _natural_table(natural: Mapping[str, Any]) -> Table:
    table = _table("natural shift", "", "classes", *_TITLES)
    for name, ways in natural.items():
        for way, row in ways.items():
            table.add_row(name, way, *_cells(row))
    return table


def _ood_table(ood: Mapping[str, Any]) -> Table:
    table = _table("out of distribution (OoD positive)", "", "score", "AUROC", "AUPR", "FPR95")
    for name, part in ood.items():
        for score, row in part.items():
            if isinstance(row, Mapping):
                numbers = [_number(row[key]) for key in ("auroc", "aupr", "fpr95")]
                table.add_row(name, score.replace("_", " "), *numbers)
    return table


def _attack_table(attacks: Mapping[str, Any]) -> Table:
    table = _table(
        "accuracy under attack, crafted on each member",
        "",
        "epsilon",
        "clean",
        "min",
        "mean",
        "max",
    )
    for name, row in attacks.items():
        shares = [f"{row[key]:.2%}" for key in ("clean", "min", "mean", "max")]
        table.add_row(name, f"{row['epsilon'] * 255:g}/255", *shares)
    return table


def _diversity_table(scores: Mapping[str, Any]) -> Table | None:
    found = scores.get("diversity")
    if found is None:
        return None
    table = _table("diversity of the members", "disagreement", "KL", "KL one way", "features' KL")
    layers = [row["kl"] for row in scores.get("features", ()) if row["kl"] is not None]
    features = _number(sum(layers) / len(layers)) if layers else ""
    table.add_row(*(_number(found[key]) for key in ("disagreement", "kl", "kl_one_way")), features)
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title)
    words = ("", "mean of", "classes", "score")
    for column in columns:
        table.add_column(column, justify="left" if column in words else "right")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


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


def _cells(row: Mapping[str, float | None], shown: Iterable[Score] = _OF_CLASSES) -> list[str]:
    return [score.text(row[score.key]) for score in shown]


def _print(table: Table) -> None:
    Console(highlight=False).print(table)
