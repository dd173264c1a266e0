"""The results of a run: what metrics.json says, as typed values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .record import printable

Array = npt.NDArray[np.float64]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Scores:
    """How good a member or an ensemble is on a test set."""

    accuracy: float
    nll: float
    ece: float


@dataclass(frozen=True)
class Diversity:
    """How much the members differ.

    Attributes:
        disagreement: The mean over pairs.
        kl: The mean over ordered pairs.
        kl_one_way: The mean over pairs, each in one order.
        disagreement_matrix: (M, M).
        kl_matrix: (M, M); row i, column j is KL(p_i || p_j).
    """

    disagreement: float
    kl: float
    kl_one_way: float
    disagreement_matrix: Array
    kl_matrix: Array


@dataclass(frozen=True)
class ShiftMeans:
    """The means over a set of corruptions and all severities."""

    accuracy: float
    nll: float
    ece: float
    ece_pooled: float


@dataclass(frozen=True)
class Shift:
    """The scores of the ensemble on corrupted test samples.

    Attributes:
        source: Where they come from: "generated" or "folder".
        frost: What generated frost was made of, if it was.
        samples: The size of each set.
        types: The corruptions.
        severities: Of each.
        accuracy: (T, S), as are the other scores.
        nll: (T, S).
        ece: (T, S).
        means: By the name of the set of corruptions.
    """

    source: str
    frost: str | None
    samples: int
    types: tuple[str, ...]
    severities: tuple[int, ...]
    accuracy: Array
    nll: Array
    ece: Array
    means: Mapping[str, ShiftMeans]

    @property
    def origin(self) -> str:
        """Where the samples come from, in words."""
        return f"{self.source}, synthetic frost" if self.frost == "synthetic" else self.source


@dataclass(frozen=True)
class Detection:
    """How well a score of novelty tells samples of no class from test samples."""

    auroc: float
    aupr: float
    fpr95: float


@dataclass(frozen=True)
class Unknown:
    """One set of samples of no class; `scores` is by the name of the score of novelty."""

    samples: int
    scores: Mapping[str, Detection]


@dataclass(frozen=True)
class Attack:
    """Accuracies under one kind of attack.

    Attributes:
        epsilon: How far a pixel may be moved, of 0 to 1.
        steps: Of the attack; None where that was not saved.
        samples: How many were attacked.
        clean: The ensemble's accuracy on them untouched.
        min: The ensemble's accuracy under the attack made for the member that is worst for it.
        mean: Its mean over members.
        max: Its highest.
        transfer: (M, M): of member m under the attack made for member k.
    """

    epsilon: float
    steps: int | None
    samples: int
    clean: float
    min: float
    mean: float
    max: float
    transfer: Array


@dataclass(frozen=True)
class Results:
    """The parts of metrics.json that not every run has."""

    more: Mapping[str, float] = field(default_factory=dict)
    diversity: Diversity | None = None
    shift: Mapping[str, Shift] = field(default_factory=dict)
    natural: Mapping[str, Mapping[str, Scores]] = field(default_factory=dict)
    unknown: Mapping[str, Unknown] = field(default_factory=dict)
    attacks: Mapping[str, Attack] = field(default_factory=dict)
    features: tuple[tuple[str, float], ...] = ()
    layers: tuple[tuple[str, float], ...] = ()


def parse_scores(values: Mapping[str, Any]) -> Scores:
    """The scores in a mapping; JSON has no NaN, so null stands for it.

    Example:
        >>> parse_scores({"accuracy": 0.5, "nll": None, "ece": 0.1, "more": 1})
        Scores(accuracy=0.5, nll=nan, ece=0.1)
    """
    return Scores(*_numbers(values, "accuracy", "nll", "ece"))


def parse_results(values: Mapping[str, Any]) -> Results:
    """The optional parts of metrics.json.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: A part is there but can't be meant.
    """
    return Results(
        more={printable(name): _number(value) for name, value in values.get("more", {}).items()},
        diversity=_diversity(values["diversity"]) if values.get("diversity") else None,
        shift=_each(values, "shift", _shift),
        natural=_each(values, "natural", lambda ways: _map(ways, parse_scores)),
        unknown=_each(values, "ood", _unknown),
        attacks=_each(values, "attacks", _attack),
        features=tuple(
            (printable(layer["layer"]), _number(layer["kl"]))
            for layer in values.get("features", ())
        ),
        layers=tuple(
            (printable(layer["name"]), float(np.mean(_array(layer["density"], 1))))
            for layer in values.get("layers", ())
        ),
    )


def _diversity(values: Mapping[str, Any]) -> Diversity:
    return Diversity(
        _number(values["disagreement"]),
        _number(values["kl"]),
        _number(values["kl_one_way"]),
        _square(values["disagreement_matrix"]),
        _square(values["kl_matrix"]),
    )


def _shift(values: Mapping[str, Any]) -> Shift:
    types = tuple(map(printable, values["types"]))
    severities = tuple(map(int, values["severities"]))
    shape = (len(types), len(severities))
    means = _map(
        values["means"],
        lambda means: ShiftMeans(*_numbers(means, "accuracy", "nll", "ece", "ece_pooled")),
    )
    frost = values.get("frost")
    return Shift(
        printable(values["source"]),
        None if frost is None else printable(frost),
        int(values["samples"]),
        types,
        severities,
        _shaped(values["accuracy"], shape),
        _shaped(values["nll"], shape),
        _shaped(values["ece"], shape),
        means,
    )


def _unknown(values: Mapping[str, Any]) -> Unknown:
    scores = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    return Unknown(
        int(values["samples"]),
        _map(scores, lambda score: Detection(*_numbers(score, "auroc", "aupr", "fpr95"))),
    )


def _attack(values: Mapping[str, Any]) -> Attack:
    return Attack(
        _number(values["epsilon"]),
        None if values["steps"] is None else int(values["steps"]),
        int(values["samples"]),
        _number(values["clean"]),
        _number(values["min"]),
        _number(values["mean"]),
        _number(values["max"]),
        _square(values["transfer"]),
    )


def _each(values: Mapping[str, Any], key: str, parse: Callable[[Any], _Value]) -> dict[str, _Value]:
    return _map(values.get(key, {}), parse)


def _map(values: Mapping[str, Any], parse: Callable[[Any], _Value]) -> dict[str, _Value]:
    return {printable(name): parse(value) for name, value in values.items()}


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _numbers(values: Mapping[str, Any], *keys: str) -> list[float]:
    return [_number(values[key]) for key in keys]


def _array(value: Any, dimensions: int) -> Array:
    array = np.array(value, dtype=np.float64)  # None becomes NaN
    if array.ndim != dimensions or not array.size:
        raise ValueError(f"an array of the shape {array.shape}")
    return array


def _shaped(value: Any, shape: tuple[int, ...]) -> Array:
    array = _array(value, len(shape))
    if array.shape != shape:
        raise ValueError(f"an array of the shape {array.shape}, not {shape}")
    return array


def _square(value: Any) -> Array:
    return _shaped(value, (len(value), len(value)))
