"""The tables that commands print."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config import Config
from ..data import DatasetSpec
from ..evaluation.results import Evaluation
from ..experiments import Experiment
from ..experiments.claims import Verdict
from ..experiments.pricing import Price, PriceList
from ..experiments.results import Results
from ..experiments.tables import measured_table, verdict_table
from ..methods import PRESETS
from ..metrics.score import MAIN_SCORES, p_text
from ..progress import duration
from ..report import tables as main_tables
from ..report.comparison import Differences
from ..report.parts import Table as Part
from ..report.parts import TableCell
from ..tasks import CLASSIFICATION, Score
from ..training.ledger import Ledger

_OF_CLASSES = CLASSIFICATION.scores
_TITLES = [score.title for score in _OF_CLASSES]
_WORDS = ("", "mean of", "classes", "score", "phase")
_STYLES = {"": "", "best": "bold", "second": "bold blue"}
_WIDTH = 100  # of a comparison
_NAMES_WIDTH = 44  # at most, of its two columns that may wrap
_PAPERS_WIDTH = 150  # where there is no terminal; the paper's main tables have nine columns


def _show(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None
) -> None:
    """Prints a table as wide as the terminal, if it has rows; columns of words are flush left."""
    table = Table(title=title, caption=caption)
    for column in columns:
        table.add_column(column, justify="left" if column in _WORDS else "right")
    for row in rows:
        strong = row[0] in ("ensemble", "adjusted")
        table.add_row(*row, style="bold" if strong else "", end_section=row[0] == "member mean")
    if table.row_count:
        Console(highlight=False).print(table)


def print_scores(found: Evaluation) -> None:
    """Prints the scores of the members, of their mean and of the ensemble."""
    shown, adjusted = found.task.scores, found.adjusted
    said = dict(found.predictors)
    if adjusted:
        said |= {"adjusted": adjusted.ensemble}
        said |= {"in turn": adjusted.in_turn} if adjusted.in_turn else {}
    rows = [(name, *_cells(row, shown)) for name, row in said.items()]
    title = f"{found.dataset}, {found.samples:,} test samples"
    _show(title, ("", *(score.title for score in shown)), rows)
    if adjusted:
        fitted, told = adjusted.temperature, "no temperature"
        if fitted is not None:
            values = ", ".join(f"{value:.3f}" for value in fitted.values)
            told = f"temperature {values} ({fitted.scope})"
        chosen = ", ".join(map(str, adjusted.chosen))
        print(f"adjusted on held-out data: members {chosen}, {told}")
        if adjusted.in_turn:
            shares = ", ".join(f"{n / sum(adjusted.asked):.1%}" for n in adjusted.asked)
            members = ", ".join(map(str, range(1, len(adjusted.asked) + 1)))
            print(
                f"in turn: {adjusted.mean_asked:.2f} members per sample on average; share "
                f"answered by {members} members: {shares}"
            )


def print_suite(found: Evaluation) -> None:
    """Prints one table for each part of an evaluation that was asked for."""
    rows: Iterable[Sequence[str]]
    for name, part in found.shift.items():
        given = _count(len(part.types), "type")
        rows = (
            (given if chosen == "given" else chosen, *_cells(row), _number(row["ece_pooled"]))
            for chosen, row in part.means.items()
        )
        title = f"{name}: {part.origin}, {part.samples:,} samples each"
        _show(title, ("mean of", *_TITLES, "ECE pooled"), rows)
    rows = (
        (name, way, *_cells(row))
        for name, ways in found.natural.items()
        for way, row in ways.items()
    )
    _show("natural shift", ("", "classes", *_TITLES), rows)
    rows = (
        (name, score.replace("_", " "), *map(_number, (it.auroc, it.aupr, it.fpr95)))
        for name, each in found.ood.items()
        for score, it in each.scores.items()
    )
    title = "out of distribution (OoD positive)"
    _show(title, ("", "score", "AUROC", "AUPR", "FPR95"), rows)
    attacked = []
    for name, under in found.attacks.items():
        shares = (f"{share:.2%}" for share in (under.clean, under.min, under.mean, under.max))
        attacked.append((name, f"{under.epsilon * 255:g}/255", *shares))
    title = "accuracy under attack, crafted on each member"
    _show(title, ("", "epsilon", "clean", "min", "mean", "max"), attacked)
    if it := found.diversity:
        layers = [layer.kl for layer in found.features if math.isfinite(layer.kl)]
        features = _number(sum(layers) / len(layers)) if layers else ""
        row = (*map(_number, (it.disagreement, it.kl, it.kl_one_way)), features)
        columns = ("disagreement", "KL", "KL one way", "features' KL")
        _show("diversity of the members", columns, [row])


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "-"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cells(row: Mapping[str, float], shown: Iterable[Score] = _OF_CLASSES) -> list[str]:
    return [score.text(row[score.key]) for score in shown]


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
    rows = [
        (
            *(str(it.run), it.phase, f"{it.epochs:g}", f"{it.steps:,}", f"{it.sparsity:g}"),
            *(str(it.explorations), f"{it.flops:.3e}", f"{it.flops / ledger.dense_flops:.3f}"),
        )
        for it in ledger.phases
    ]
    title = f"{config.method}: {config.model} on {spec.name}, batch {config.batch_size}"
    columns = ("run", "phase", "epochs", "steps", "sparsity", "explorations", "FLOPs", "x")
    _show(title, columns, rows)
    print(
        f"training FLOPs   {ledger.flops:.3e}  {ledger.relative_flops:.3f}x of one dense model\n"
        f"                 (dense: {ledger.dense_epochs:g} epochs, {ledger.dense_flops:.3e}; "
        f"growth adds {ledger.relative_growth_flops:.4f}x)\n"
        f"training runs    {ledger.runs:g}\n"
        f"test FLOPs       {ledger.test_flops:.3e}  {ledger.relative_test_flops:.3f}x\n"
        f"members          {ledger.members} in {_count(ledger.tickets, 'network')} of "
        f"{ledger.ticket_parameters:,} parameters (the dense one has {ledger.parameters:,}), "
        f"{ledger.ticket_bytes / 1e6:.1f} MB in all\n"
        f"preset           {config.preset}: {PRESETS[config.preset]}"
    )


def print_comparison(rows: Sequence[main_tables.RunRow], scores: Sequence[Score]) -> None:
    """Prints the main columns of the comparison, as many as leave room for the names.

    Those that weigh least are the first to have room.
    """
    console = _comparison_console()
    names = max(len(row.run) for row in rows) + max(len(row.description) for row in rows) + 4
    room = console.width - min(names, _NAMES_WIDTH)
    wanted = [*main_tables.main_columns(scores), *main_tables.more_columns(scores)]
    columns = [each for each in main_tables.columns_of(rows, wanted) if each.short is not None]
    fitting = []
    for column in sorted(columns, key=lambda column: column.weight):
        texts = [*(column.short or "").split("\n"), *(column.cell(row).text for row in rows)]
        room -= max(map(len, texts)) + 2
        if room < 0:
            break
        fitting.append(column)
    columns = [column for column in columns if column in fitting]
    title = f"{rows[0].dataset}, {rows[0].samples:,} test samples: scores of the ensembles"
    table = _comparison(title, ("run", "method"), [column.short or "" for column in columns])
    _fill(table, main_tables.main_table(rows, columns), titled=False)
    console.print(table)


def print_differences(reference: str, differences: Mapping[str, Differences]) -> None:
    """Prints how each run differs from the reference, and how likely that is chance."""
    title = f"differences from {reference}, and their two-sided p-values"
    titles = [title for score in MAIN_SCORES for title in (score.short, "p")]
    table = _comparison(title, ("run",), (*titles[:2], "McNemar\np", *titles[2:]))
    for run, found in differences.items():
        cells = []
        for score in MAIN_SCORES:
            it = found.scores[score.key]
            cells += [TableCell.of(it.value, f"+{score.form}").text, p_text(it.p)]
        table.add_row(Text(run), *cells[:2], p_text(found.mcnemar), *cells[2:])
    _comparison_console().print(table)


def _comparison_console() -> Console:
    console = Console(highlight=False)
    # What is piped has no width of its own.
    console.width = min(_WIDTH, console.width) if console.is_terminal else _WIDTH
    return console


def _comparison(title: str, names: Iterable[str], numbers: Iterable[str]) -> Table:
    """A table without lines, with columns of names and of numbers."""
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, vertical="bottom", overflow="fold")
    for number in numbers:
        table.add_column(number, justify="right", vertical="bottom", no_wrap=True)
    return table


def print_measured(
    experiments: Sequence[Experiment], results: Results, verdicts: Sequence[Verdict]
) -> None:
    """Prints each experiment, the mean and deviation over seeds, and what becomes of the claims."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PAPERS_WIDTH)
    for each in experiments:
        console.print(_of_part(_title(each), measured_table(each, results)))
    if verdicts:
        console.print(_of_part("claims", verdict_table(verdicts)))


def _title(experiment: Experiment) -> str:
    return f"{experiment.name}: {experiment.title} ({experiment.paper})"


def _of_part(title: str, part: Part) -> Table:
    """A table of a page, for the terminal."""
    table = Table(title=title)
    for column, heading in enumerate(part.header):
        table.add_column(heading, justify="right" if part.is_numeric(column) else "left")
    _fill(table, part)
    return table


def _fill(table: Table, part: Part, titled: bool = True) -> None:
    for group, rows in part.parts():
        if group and titled:
            table.add_row(Text(group, style="italic"))
        for row in rows:  # of text, not markup: a run may be named "[red]"
            table.add_row(*(Text(cell.text, style=_STYLES[cell.mark]) for cell in row))
        table.add_section()


def print_prices(prices: PriceList, experiments: Iterable[Experiment]) -> None:
    """Prints a table for each experiment, and what is left to pay in all."""
    titles = {each.name: _title(each) for each in experiments}
    columns = ("", "x dense", "paper", "differs", "FLOPs", "time", "done")
    for name, group in groupby(prices.prices, key=lambda price: price.experiment):
        shown = list(group)
        caption = "; ".join(sorted({f"{each.model} on {each.data}" for each in shown}))
        _show(titles[name], columns, map(_price_row, shown), caption)
    time = "" if prices.seconds is None else f", about {duration(prices.seconds)} of training"
    done = f"{prices.finished} of {prices.tasks} trainings are finished"
    print(f"{done}; {prices.flops:.3g} FLOPs are left{time}")
    if prices.seconds is None:
        print("--throughput 1e14 estimates the time on a device that does 1e14 FLOPs per second")
    if any(not price.derivable for price in prices.prices):
        print("* can't be derived: the notes of the experiment say why")


def _price_row(price: Price) -> Sequence[str]:
    far, mark = price.difference, "" if price.derivable else " *"
    return (
        price.name,
        f"{price.relative_flops:.3f}",
        "" if price.paper is None else f"{price.paper:.2f}",
        "" if far is None else f"{far:+.3f}{mark}",
        f"{price.flops:.2e}",
        "" if price.seconds is None else duration(price.seconds),
        f"{price.finished}/{price.seeds}",
    )
