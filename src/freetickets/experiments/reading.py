"""Experiment files: YAML that is read strictly, so that a slip of the pen is an error."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

from ..config import Config
from ..data.spec import dataset_names
from ..errors import FreeTicketsError, UnknownNameError
from ..methods import Method
from ..models.names import check_name
from .cell import Cell
from .experiment import Correction, Experiment, Needs, Row
from .vocabulary import CLAIMS, PARTS, is_column

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

Values = Mapping[str, Any]

# Which keys a mapping may have, and the type of each.
_EXPERIMENT_KEYS = {
    "name": str,
    "title": str,
    "paper": str,
    "latex": str,
    "dataset": str,
    "model": str,
    "columns": list,
    "needs": dict,
    "figures": list,
    "claims": list,
    "seeds": int,
    "corrected": dict,
    "notes": list,
    "rows": list,
    "provisional": str,
}
_ROW_KEYS = {
    "label": str,
    "dataset": str,
    "model": str,
    "method": str,
    "options": dict,
    "members": int,
    "over": dict,
    "paper": dict,
    "dense_flops": float,
    "starred": bool,
    "corrected": dict,
    "underivable": dict,
    "cell": str,
    "epochs": float,
    "settings": dict,
    "of": str,
    "seeds": int,
}
_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a map",
}


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
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise FreeTicketsError(f"{source} is not valid YAML: {reason}") from error
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
    values: Any, datasets: typing.Iterable[str], known: Mapping[str, Cell] | None = None
) -> Experiment:
    """Makes an experiment of plain values.

    Args:
        values: What its YAML says.
        datasets: What the rows may be trained on.
        known: The cells that rows may be made of, by name; its own are added.

    Raises:
        FreeTicketsError: See `parse`.
    """
    values = _checked(values, _EXPERIMENT_KEYS, "an experiment")
    _require(values, "an experiment", "name", "title", "paper", "latex", "columns", "rows")
    columns = _texts("columns", values["columns"])
    for column in columns:
        _check_column(column)
    _check_known("part of a report", _texts("figures", values.get("figures", [])), PARTS)
    _check_known("claim", _texts("claims", values.get("claims", [])), CLAIMS)
    shared = {key: values[key] for key in ("dataset", "model") if key in values}
    known = dict(known or {})
    rows = []
    for each in values["rows"]:
        rows.append(_row(each, shared, columns, list(datasets), known))
        known |= {cell.name: cell for cell in rows[-1].cells}
    experiment = Experiment(
        name=values["name"],
        title=values["title"],
        paper=values["paper"],
        latex=values["latex"],
        rows=tuple(rows),
        columns=columns,
        needs=_needs(values.get("needs", {})),
        figures=_texts("figures", values.get("figures", [])),
        claims=_texts("claims", values.get("claims", [])),
        seeds=values.get("seeds", 1),
        corrections=_corrections(
            values.get("corrected", {}), {column: column.split(".")[-1] for column in columns}
        ),
        notes=_texts("notes", values.get("notes", [])),
        provisional=values.get("provisional", ""),
    )
    if not experiment.rows:
        raise FreeTicketsError("rows must not be empty")
    if experiment.seeds < 1:
        raise FreeTicketsError(f"seeds must be at least 1, not {experiment.seeds}")
    return experiment


def _row(
    values: Any,
    shared: Values,
    columns: tuple[str, ...],
    datasets: list[str],
    known: Mapping[str, Cell],
) -> Row:
    values = {**shared, **_checked(values, _ROW_KEYS, "a row")}
    _require(values, "a row", "label", "dataset", "model", "method")
    label = values["label"]
    try:
        _check_known("dataset", (values["dataset"],), datasets)
        check_name(values["model"])
        options = values.get("options", {})
        method = _method(values["method"], options)
        over = {
            name: tuple(
                getattr(_method(method.name, {**options, name: value}), name)
                for value in _typed(f"{name} of over", several, list)
            )
            for name, several in values.get("over", {}).items()
        }
        paper = _numbers("paper", values.get("paper", {}), columns)
        _check_members(values.get("members"), method)
        underivable = values.get("underivable", {})
        _check_known("column of the row", underivable, paper)
        settings = dict(values.get("settings", {}))
        _check_known("setting", settings, (each.name for each in fields(Config)))
        if "epochs" in values:
            settings["epochs"] = values["epochs"]
        _check_known("earlier cell", [values["of"]] if "of" in values else [], known)
        return Row(
            label=label,
            dataset=values["dataset"],
            model=values["model"],
            method=method,
            members=values.get("members"),
            over=over,
            paper=paper,
            dense_flops=values.get("dense_flops"),
            starred=values.get("starred", False),
            corrections=_corrections(values.get("corrected", {}), paper),
            underivable=dict(underivable),
            settings=settings,
            cell=values.get("cell", ""),
            of=known.get(values.get("of", "")),
            seeds=values.get("seeds"),
        )
    except FreeTicketsError as error:
        raise FreeTicketsError(f"row {label!r}: {error}") from error


def _method(name: str, options: dict[str, Any]) -> Method:
    """The method with its options, as a run would have it."""
    return Config(method=name, options=options).make_method()


def _needs(values: Values) -> Needs:
    hints = typing.get_type_hints(Needs)
    kinds = {each.name: bool if hints[each.name] is bool else list for each in fields(Needs)}
    checked = _checked(values, kinds, "needs")
    for key, value in checked.items():
        if isinstance(value, list):
            checked[key] = _texts(key, value)
    return Needs(**checked)


def _corrections(values: Values, used: Mapping[str, float | str]) -> tuple[Correction, ...]:
    corrections = []
    for column, told in values.items():
        _check_known("corrected column", (column,), used)
        told = _checked(told, {"printed": str | float, "why": str}, f"corrected {column}")
        _require(told, f"corrected {column}", "printed", "why")
        corrections.append(Correction(column, told["printed"], used[column], told["why"]))
    return tuple(corrections)


def _numbers(what: str, values: Values, columns: tuple[str, ...]) -> dict[str, float]:
    for column in values:
        _check_column(column)
        if column not in columns:
            raise FreeTicketsError(f"{what}: add {column} to the columns, or leave it out")
    return _checked(values, dict.fromkeys(columns, float), what)


def _check_members(members: int | None, method: Method) -> None:
    most = getattr(method, "tickets", getattr(method, "members", 1))
    if members is not None and not 1 <= members <= most:
        raise FreeTicketsError(f"members must lie between 1 and {most}, not {members}")


def _check_column(name: str) -> None:
    if not is_column(name):
        raise FreeTicketsError(f"unknown column {name!r}: see freetickets.experiments.vocabulary")


def _check_known(kind: str, names: typing.Iterable[str], known: typing.Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise UnknownNameError(kind, str(name), known)


def _checked(values: Any, kinds: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A mapping with known keys only, each value of its type; whole numbers count as numbers."""
    if not isinstance(values, Mapping):
        raise FreeTicketsError(f"{what} must be a map, not {values!r}")
    _check_known(f"key of {what}:", map(str, values), kinds)
    return {key: _typed(f"{key} of {what}", value, kinds[key]) for key, value in values.items()}


def _typed(what: str, value: Any, kind: Any) -> Any:
    choices = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if float in choices and type(value) is int:
        return float(value)
    if type(value) not in choices:
        wanted = " or ".join(_KINDS[choice] for choice in choices)
        raise FreeTicketsError(f"{what} must be {wanted}, not {value!r}")
    return value


def _texts(what: str, values: list[Any]) -> tuple[str, ...]:
    return tuple(_typed(f"an entry of {what}", value, str) for value in values)


def _require(values: Values, what: str, *keys: str) -> None:
    missing = [key for key in keys if key not in values]
    if missing:
        raise FreeTicketsError(f"{what} lacks {', '.join(missing)}")
