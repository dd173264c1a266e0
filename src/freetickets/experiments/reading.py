"""Experiment files: YAML that is read strictly, so that a slip of the pen is an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..data.spec import dataset_names
from ..errors import FreeTicketsError, UnknownNameError
from ..methods import Method
from ..metrics.score import column_of
from ..models.names import check_name
from ..reading import parse_yaml, read, read_fields
from .claims import CLAIMS
from .experiment import Cell, Experiment, Row

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# What an experiment may show: sections of a report, by their key.
PARTS = (
    "main", "cost", "members", "ensemble-size", "sparsity", "correlations", "diversity",
    "disagreement", "classes", "features", "trajectories", "reliability", "risk-coverage", "ood",
    "roc", "novelty", "corruptions", "severity", "corruption-types", "natural", "attacks",
    "attack-fgsm", "transfer-fgsm", "layers", "phases",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Row(Row):
    """What a file says of a row."""

    method: str  # type: ignore[assignment]
    options: dict[str, Any] = field(default_factory=dict)
    epochs: float | None = None
    of: str = ""  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class _Experiment(Experiment):
    """What a file says of an experiment."""

    rows: tuple[dict[str, Any], ...]  # type: ignore[assignment]
    beside: tuple[str, ...] = ()  # type: ignore[assignment]
    dataset: str | None = None  # of all rows that don't say another
    model: str | None = None


def yaml_files(folder: str) -> dict[str, Traversable]:
    """The YAML files of a folder of this package by their names, in order."""
    found = files(__package__).joinpath(folder).iterdir()
    named = {file.name.removesuffix(".yaml"): file for file in found if file.name.endswith(".yaml")}
    return dict(sorted(named.items()))


def _papers() -> dict[str, Traversable]:
    """The paper's files by the name of their experiment; a number in front is for the order."""
    return {name.partition("-")[2]: file for name, file in yaml_files("paper").items()}


def experiment_names() -> list[str]:
    """The names of the tables and figures, in the paper's order."""
    return list(_papers())


def load(name: str) -> Experiment:
    """Reads one of the paper's tables or figures."""
    found = _papers()
    _check_known("experiment", [name], found)
    experiment = parse(found[name].read_text(encoding="utf-8"), found[name].name)
    if experiment.name != name:
        raise FreeTicketsError(f"{found[name].name}: its name must be {name}, as its file's")
    return experiment


def parse(text: str, source: str = "experiment") -> Experiment:
    """Reads an experiment from YAML; `source` is what errors call the text."""
    values = parse_yaml(text, source, aliases=True)
    try:
        return read_experiment(values, dataset_names())
    except FreeTicketsError as error:
        raise FreeTicketsError(f"{source}: {error}") from error


def read_experiment(
    values: Any, datasets: Collection[str], earlier: Mapping[str, Row] | None = None
) -> Experiment:
    """Makes an experiment of what its YAML says, which may name `earlier` rows by their cells."""
    told: _Experiment = read(_Experiment, values)
    _check_columns(told.columns)
    _check_known("part of a report", told.figures, PARTS)
    _check_known("claim", told.claims, CLAIMS)
    shared = {key: values[key] for key in ("dataset", "model") if key in values}
    named, rows = dict(earlier or {}), []
    known = {name: row.cells[0] for name, row in named.items()}
    for each in told.rows:
        row = {**shared, **each}
        try:
            rows.append(_row(read(_Row, row), told.columns, datasets, known))
        except FreeTicketsError as error:
            raise FreeTicketsError(f"row {row.get('label')!r}: {error}") from error
        known |= {cell.name: cell for cell in rows[-1].cells}
    if not rows:
        raise FreeTicketsError("rows must not be empty")
    _check_known("corrected column", told.corrected, told.columns)
    _check_known("earlier cell", told.beside, named)
    beside = tuple(named[name] for name in told.beside)
    return Experiment(**{**_alike(Experiment, told), "rows": tuple(rows), "beside": beside})


def _row(
    told: _Row, columns: tuple[str, ...], datasets: Collection[str], known: Mapping[str, Cell]
) -> Row:
    _check_known("dataset", [told.dataset], datasets)
    check_name(told.model)

    def with_options(**more: Any) -> Method:
        return Config(method=told.method, options={**told.options, **more}).make_method()

    method = with_options()
    over = {
        name: tuple(getattr(with_options(**{name: value}), name) for value in several)
        for name, several in told.over.items()
    }
    _check_columns(told.paper)
    for column in told.paper:
        if column not in columns:
            raise FreeTicketsError(f"paper: add {column} to the columns, or leave it out")
    most = getattr(method, "tickets", getattr(method, "members", 1))
    if (told.members or 1) > most:
        raise FreeTicketsError(f"members must lie between 1 and {most}, not {told.members}")
    _check_known("column of the row", told.underivable, told.paper)
    settings = {**told.settings, **({} if told.epochs is None else {"epochs": told.epochs})}
    read_fields(Config, settings, noun="setting")
    _check_known("earlier cell", [told.of] if told.of else [], known)
    _check_known("corrected column", told.corrected, told.paper)
    made = {"over": over, "settings": settings, "method": method, "of": known.get(told.of)}
    return Row(**{**_alike(Row, told), **made})


def _alike(kind: type[Experiment | Row], told: Any) -> dict[str, Any]:
    return {each.name: getattr(told, each.name) for each in fields(kind)}


def _check_columns(names: Iterable[str]) -> None:
    for name in names:
        if column_of(name) is None:
            raise FreeTicketsError(f"unknown column {name!r}: see freetickets.metrics.score")


def _check_known(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in (every := list(known)):
            raise UnknownNameError(kind, name, every)
