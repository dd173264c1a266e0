"""Experiment files: YAML that is read strictly, so that a slip of the pen is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..data.spec import dataset_names
from ..errors import FreeTicketsError, UnknownNameError
from ..methods import Method
from ..metrics.score import column_of
from ..models.names import check_name
from ..reading import Count, parse_yaml, read, read_fields
from .claims import CLAIMS
from .experiment import Cell, Correction, Experiment, Needs, Row

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# What an experiment may show: sections of a report, by their key.
PARTS = (
    "main", "cost", "members", "ensemble-size", "sparsity", "correlations", "diversity",
    "disagreement", "classes", "features", "trajectories", "reliability", "risk-coverage", "ood",
    "roc", "novelty", "corruptions", "severity", "corruption-types", "natural", "attacks",
    "attack-fgsm", "transfer-fgsm", "layers", "phases",
)  # fmt: skip


@dataclass(frozen=True)
class _Misprint:
    """What a file says of a number that the paper got wrong; see `Correction`."""

    printed: float | str
    why: str


@dataclass(frozen=True)
class _Row:
    """What a file says of a row; see `Row`."""

    label: str
    dataset: str
    model: str
    method: str
    options: dict[str, Any] = field(default_factory=dict)
    members: Count | None = None
    over: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    paper: dict[str, float] = field(default_factory=dict)
    dense_flops: float | None = None
    starred: bool = False
    corrected: dict[str, _Misprint] = field(default_factory=dict)
    underivable: dict[str, str] = field(default_factory=dict)
    cell: str = ""
    epochs: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    of: str = ""
    seeds: Count | None = None


@dataclass(frozen=True)
class _Experiment:
    """What a file says of an experiment; see `Experiment`."""

    name: str
    title: str
    paper: str
    latex: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    dataset: str | None = None
    model: str | None = None
    needs: Needs = field(default_factory=Needs)
    figures: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    seeds: Count = 1
    corrected: dict[str, _Misprint] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    provisional: str = ""


def experiment_names() -> list[str]:
    """The names of the tables and figures, in the paper's order.

    Example:
        >>> experiment_names()[:4]
        ['cifar10', 'cifar100', 'imagenet', 'diversity']
    """
    return list(_files())


def load(name: str) -> Experiment:
    """Reads one of the paper's tables or figures.

    Raises:
        UnknownNameError: There is none of this name.

    Example:
        >>> table = load("cifar10")
        >>> table.paper, table.rows[3].label, table.rows[3].paper["accuracy"]
        ('Table 1', 'EDST Ensemble (M=3) (S=0.8)', 96.3)
    """
    found = _files()
    if name not in found:
        raise UnknownNameError("experiment", name, found)
    experiment = parse(found[name].read_text(encoding="utf-8"), found[name].name)
    if experiment.name != name:
        raise FreeTicketsError(f"{found[name].name}: its name must be {name}, as its file's")
    return experiment


def parse(text: str, source: str = "experiment") -> Experiment:
    """Reads an experiment from YAML; `source` is what errors call the text.

    Raises:
        FreeTicketsError: It is no YAML, or a key, a method, an option, a column, a claim or a part
            is unknown, or a value is of the wrong type.
    """
    values = parse_yaml(text, source, aliases=True)
    try:
        return read_experiment(values, dataset_names())
    except FreeTicketsError as error:
        raise FreeTicketsError(f"{source}: {error}") from error


def _files() -> dict[str, Traversable]:
    """The files by the name of their experiment; a number in front is for the order only."""
    found = sorted(files(__package__).joinpath("paper").iterdir(), key=lambda file: file.name)
    return {
        file.name.removesuffix(".yaml").partition("-")[2]: file
        for file in found
        if file.name.endswith(".yaml")
    }


def read_experiment(
    values: Any, datasets: Iterable[str], known: Mapping[str, Cell] | None = None
) -> Experiment:
    """Makes an experiment of plain values.

    Args:
        values: What its YAML says.
        datasets: What the rows may be trained on.
        known: The cells that rows may be made of, by name; its own are added.

    Raises:
        FreeTicketsError: See `parse`.
    """
    told: _Experiment = read(_Experiment, values)
    for column in told.columns:
        _check_column(column)
    _check_known("part of a report", told.figures, PARTS)
    _check_known("claim", told.claims, CLAIMS)
    shared = {key: values[key] for key in ("dataset", "model") if key in values}
    known = dict(known or {})
    rows: list[Row] = []
    for each in told.rows:
        rows.append(_row({**shared, **each}, told.columns, list(datasets), known))
        known |= {cell.name: cell for cell in rows[-1].cells}
    if not rows:
        raise FreeTicketsError("rows must not be empty")
    headings = {column: column.split(".")[-1] for column in told.columns}
    corrections = _corrections(told.corrected, headings)
    return Experiment(**_shared_fields(Experiment, told, rows=tuple(rows), corrections=corrections))


def _row(
    values: Mapping[str, Any],
    columns: tuple[str, ...],
    datasets: list[str],
    known: Mapping[str, Cell],
) -> Row:
    try:
        told: _Row = read(_Row, values)
        _check_known("dataset", (told.dataset,), datasets)
        check_name(told.model)
        method = _method(told.method, told.options)
        over = {
            name: tuple(
                getattr(_method(method.name, {**told.options, name: value}), name)
                for value in several
            )
            for name, several in told.over.items()
        }
        for column in told.paper:
            _check_column(column)
            if column not in columns:
                raise FreeTicketsError(f"paper: add {column} to the columns, or leave it out")
        most = getattr(method, "tickets", getattr(method, "members", 1))
        if (told.members or 1) > most:
            raise FreeTicketsError(f"members must lie between 1 and {most}, not {told.members}")
        _check_known("column of the row", told.underivable, told.paper)
        settings = dict(told.settings)
        if told.epochs is not None:
            settings["epochs"] = told.epochs
        read_fields(Config, settings, noun="setting")
        _check_known("earlier cell", [told.of] if told.of else [], known)
        own = {
            "method": method,
            "over": over,
            "corrections": _corrections(told.corrected, told.paper),
            "settings": settings,
            "of": known.get(told.of),
        }
        return Row(**_shared_fields(Row, told, **own))
    except FreeTicketsError as error:
        raise FreeTicketsError(f"row {values.get('label')!r}: {error}") from error


def _shared_fields(kind: type[Experiment | Row], told: Any, **own: Any) -> dict[str, Any]:
    """The fields of a class: those that are its own, the others as a file tells them."""
    names = [each.name for each in fields(kind) if each.name not in own]
    return {**{name: getattr(told, name) for name in names}, **own}


def _method(name: str, options: dict[str, Any]) -> Method:
    """The method with its options, as a run would have it."""
    return Config(method=name, options=options).make_method()


def _corrections(
    misprints: Mapping[str, _Misprint], used: Mapping[str, float | str]
) -> tuple[Correction, ...]:
    _check_known("corrected column", misprints, used)
    return tuple(
        Correction(column, told.printed, used[column], told.why)
        for column, told in misprints.items()
    )


def _check_column(name: str) -> None:
    if column_of(name) is None:
        raise FreeTicketsError(f"unknown column {name!r}: see freetickets.metrics.score")


def _check_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, name, known)
