"""The results of an evaluation: what metrics.json says, typed; read and written here alone.

The records of experiments hold the same values, with null for what is no finite number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..calibration import Temperature
from ..errors import FreeTicketsError, NewerFileError
from ..metrics.score import MAIN_SCORES
from ..reading import Allow, Count, Natural, Text, damaged, must, read, read_json
from ..tasks import CLASSIFICATION, Score, Task, task_name

Array = npt.NDArray[np.float64]
Kind = TypeVar("Kind")

# The sets of corruptions that a mean can be over, best known first.
CORRUPTION_SETS = ("all19", "common15", "ub", "given")


def _grid(value: Any) -> Array:
    """An array of equally long lists."""
    rows = read(tuple[tuple[float, ...], ...], value, allow=Allow.RECORD)
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ValueError("must have rows of one length")
    return np.array(rows)


def _square(value: Any) -> Array:
    array = _grid(value)
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"must have as many rows as columns, not {array.shape}")
    return array


def _within_limits(found: Mapping[str, float], scores: Iterable[Score]) -> None:
    """Raises a ValueError unless there is each of the scores, and can be what it is."""
    for score in scores:
        if score.key not in found:
            raise ValueError(f"has no {score.key}")
        low, high = score.limits
        if found[score.key] < low or found[score.key] > high:  # NaN is what was not measured
            raise ValueError(f"{score.key} can't be {found[score.key]}")


def _of_classes(found: Mapping[str, float]) -> Mapping[str, float]:
    # What was measured before a score was added has not got it.
    later = {score.key: math.nan for score in MAIN_SCORES if score.key not in _ALWAYS}
    _within_limits(later | dict(found), MAIN_SCORES)
    return later | dict(found)


_ALWAYS = ("accuracy", "nll", "ece")  # every version has measured these

Square = Annotated[Array, _square]
# A little above 1 is what rounding does; NaN is what was not measured.
Rate = Annotated[float, must("be a share", lambda share: not (share < 0 or share > 1 + 1e-6))]
Values = Mapping[Text, float]  # scores by their keys
ClassValues = Annotated[Values, _of_classes]


@dataclass(frozen=True)
class Diversity:
    """How much the members differ.

    Attributes:
        disagreement: The mean over pairs.
        kl: The mean over ordered pairs.
        kl_one_way: The mean over pairs, each in one order.
        disagreement_matrix: (M, M).
        kl_matrix: (M, M); row i, column j is KL(p_i || p_j).
        disagreement_by_class: The mean over pairs on the samples of each class.
    """

    disagreement: float
    kl: float
    kl_one_way: float
    disagreement_matrix: Square
    kl_matrix: Square
    disagreement_by_class: tuple[float, ...] = ()


@dataclass(frozen=True)
class CorruptionSet:
    """What a mean over corruptions is over: only means over the same can be compared.

    Attributes:
        name: Of the set.
        severities: Of each type.
        types: Those that were asked for, where the set is "given"; other names say which.
    """

    name: str
    severities: tuple[int, ...]
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shift:
    """The scores of the ensemble on corrupted test samples.

    Attributes:
        source: Where they come from: "generated" or "folder".
        samples: The size of each set.
        types: The corruptions.
        severities: Of each.
        scores: By key, each of types and severities, (T, S).
        means: The means over all severities and a set of corruptions, by the name of the set: of
            each score, and "ece_pooled".
        frost: What generated frost was made of, if it was.
    """

    source: Text | None
    samples: Natural
    types: tuple[Text, ...]
    severities: tuple[int, ...]
    scores: Mapping[Text, Annotated[Array, _grid]]
    means: Mapping[Text, ClassValues]
    frost: Text | None = None

    def __post_init__(self) -> None:
        shape = (len(self.types), len(self.severities))
        for name, grid in self.scores.items():
            if grid.shape != shape:
                raise ValueError(f"{name} is of the shape {grid.shape}, not {shape}")

    @property
    def origin(self) -> str:
        """Where the samples come from, in words."""
        return f"{self.source}" + (", synthetic frost" if self.frost == "synthetic" else "")

    @property
    def sets(self) -> list[CorruptionSet]:
        """The sets that there are means over, best known first."""
        return [
            CorruptionSet(name, self.severities, self.types if name == "given" else ())
            for name in CORRUPTION_SETS
            if name in self.means
        ]


def _shift(value: Any) -> Shift:
    """Files have the scores beside the other values."""
    values = read(Mapping[str, Any], value)
    known = [score.key for score in MAIN_SCORES if score.key in values or score.key in _ALWAYS]
    missing = [key for key in known if key not in values]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    scores = {key: values[key] for key in known}
    found: Shift = read(Shift, {**values, "scores": scores}, allow=Allow.RECORD)
    return found


@dataclass(frozen=True)
class Detection:
    """How well a score of novelty tells samples of no class from test samples."""

    auroc: Rate
    aupr: Rate
    fpr95: Rate


@dataclass(frozen=True)
class Unknown:
    """One set of samples of no class, by the score of novelty that tells them."""

    samples: Natural
    max_probability: Detection
    entropy: Detection
    mutual_information: Detection | None = None

    @property
    def scores(self) -> dict[str, Detection]:
        """Those that there are, by name."""
        named = ("max_probability", "entropy", "mutual_information")
        return {name: found for name in named if (found := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Attack:
    """Accuracies under one kind of attack.

    Attributes:
        epsilon: How far a pixel may be moved, of 0 to 1.
        samples: How many were attacked.
        clean: The ensemble's accuracy on them untouched.
        min: The ensemble's accuracy under the attack made for the member that is worst for it.
        mean: Its mean over members.
        max: Its highest.
        transfer: (M, M): of member m under the attack made for member k.
        steps: Of the attack; None where that was not saved.
        ensemble: The ensemble's accuracy under the attack made for each member.
    """

    epsilon: float
    samples: Natural
    clean: Rate
    min: Rate
    mean: Rate
    max: Rate
    transfer: Square
    steps: int | None = None
    ensemble: tuple[Rate, ...] = ()


@dataclass(frozen=True)
class Feature:
    """How far apart the members are in one layer: the mean over pairs, and of each pair."""

    layer: Text
    kl: float
    kl_matrix: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Layer:
    """How dense a weight is in each ticket."""

    name: Text
    density: Annotated[tuple[Rate, ...], must("name a ticket", bool)]
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class NetworkFacts:
    """What only the networks can tell of themselves: the content of networks.json.

    Attributes:
        tickets: The digest of the tickets.
        layers: Their weights; none if all are dense.
        features: Their feature maps, if these were compared.
        feature_samples: On how many samples that was.
    """

    tickets: str | None = None
    layers: tuple[Layer, ...] = ()
    features: tuple[Feature, ...] = ()
    feature_samples: Natural = 0


@dataclass(frozen=True)
class Adjusted:
    """What `evaluate --select` and `--temperature` found; `chosen` counts members from 1."""

    chosen: tuple[Count, ...]
    tickets: str | None
    temperature: Temperature | None
    members: tuple[Values, ...] = ()
    member_mean: Values = field(default_factory=dict)
    ensemble: Values = field(default_factory=dict)


def _score(value: Any) -> Score:
    facts: _ScoreFacts = read(_ScoreFacts, value, allow=Allow.RECORD)
    return Score(**vars(facts))


@dataclass(frozen=True)
class _ScoreFacts:
    """What a file says of a score: all but its function, which would be code."""

    key: Text
    title: Text
    form: str
    higher_is_better: bool
    name: Text
    short: Text


@dataclass(frozen=True)
class TaskFacts:
    """What metrics.json says of a task, so that its scores can be shown without its code.

    Attributes:
        name: What files call it.
        running: The score of the log.
        scores: Its scores, in the order of tables.
        has_classes: Whether outputs are scores of classes.
    """

    name: Text
    running: Annotated[Score, _score]
    scores: Annotated[tuple[Annotated[Score, _score], ...], must("name a score", bool)]
    has_classes: bool = False

    @classmethod
    def of(cls, task: Task) -> TaskFacts:
        """The facts of a task."""
        return cls(task_name(task), task.running, task.scores, task.has_classes)

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain data."""
        running, *scores = (
            {each.name: getattr(score, each.name) for each in fields(_ScoreFacts)}
            for score in (self.running, *self.scores)
        )
        return {
            "name": self.name,
            "running": running,
            "scores": scores,
            "has_classes": self.has_classes,
        }


@dataclass(frozen=True)
class Evaluation:
    """All that was measured of a run: the content of metrics.json.

    Attributes:
        dataset: The data set that the run was tested on.
        samples: How many samples that test had.
        members: The scores of each member.
        member_mean: The mean of those.
        ensemble: The scores of the members' joint prediction.
        temperature: That of the ensemble, if it has one.
        settings: The identity of the run's settings.
        more: Further scores of classes.
        diversity: How the members differ; None for a single one.
        shift: By the name of a corrupted data set.
        natural: By the name of a set, and by how many classes were counted: "200-way".
        ood: By the name of a set of samples of no class.
        attacks: By the name of an attack.
        features: How far apart the members are in each layer, if that was asked for.
        layers: How dense each weight is; none if all are.
        adjusted: What was chosen and fitted on held-out data.
        task: What was learned; files of classification don't say it.
    """

    dataset: str
    samples: Natural
    members: Annotated[tuple[Values, ...], must("name a member", bool)]
    member_mean: Values
    ensemble: Values
    temperature: Temperature | None = None
    settings: str | None = None
    more: Values = field(default_factory=dict)
    diversity: Diversity | None = None
    shift: Mapping[Text, Annotated[Shift, _shift]] = field(default_factory=dict)
    natural: Mapping[Text, Mapping[Text, ClassValues]] = field(default_factory=dict)
    ood: Mapping[Text, Unknown] = field(default_factory=dict)
    attacks: Mapping[Text, Attack] = field(default_factory=dict)
    features: tuple[Feature, ...] = ()
    layers: tuple[Layer, ...] = ()
    adjusted: Adjusted | None = None
    task: TaskFacts = field(default_factory=lambda: TaskFacts.of(CLASSIFICATION))

    def __post_init__(self) -> None:
        if self.task.name == task_name(CLASSIFICATION):
            object.__setattr__(self, "members", tuple(map(_of_classes, self.members)))
            object.__setattr__(self, "member_mean", _of_classes(self.member_mean))
            object.__setattr__(self, "ensemble", _of_classes(self.ensemble))
        for found in (*self.members, self.member_mean, self.ensemble):
            _within_limits(found, self.task.scores)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Evaluation:
        """Makes it of plain values, as `as_dict` returns them and records hold them.

        Raises:
            FreeTicketsError: One is missing, not of its type, or not in its range.
        """
        found: Evaluation = read(cls, values, allow=Allow.RECORD)
        return found

    @classmethod
    def load(cls, path: Path) -> Evaluation:
        """Reads metrics.json.

        Raises:
            FreeTicketsError: It is damaged.
        """
        values = read_json(path)
        with damaged(path):
            return cls.of(values)

    def save(self, path: Path) -> None:
        """Writes metrics.json."""
        from ..storage import write_json

        write_json(path, self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """The plain values of metrics.json; what was not measured is left out, or None."""
        found: dict[str, Any] = plain(self)
        if self.task.name == task_name(CLASSIFICATION):  # as all were once
            del found["task"]
        return found

    @property
    def corrupted(self) -> Shift | None:
        """What was scored on the corrupted samples of the test set itself."""
        own = f"{Path(self.dataset).stem}-c"
        return self.shift.get(own, next(iter(self.shift.values()), None))

    def means(self, corruptions: CorruptionSet | None = None) -> Values | None:
        """The means over a set of corruptions; None if that was not measured.

        Args:
            corruptions: What `choose_corruptions` found for all that are compared; None for the
                best known set that there is.
        """
        shift = self.corrupted
        sets = [] if shift is None else shift.sets
        if shift is None or not sets or (corruptions is not None and corruptions not in sets):
            return None
        return shift.means[(corruptions or sets[0]).name]

    def value(self, column: str, corruptions: CorruptionSet | None = None) -> float | None:
        """The number of a column; None where it was not measured.

        Args:
            column: "accuracy" or another score of the ensemble, "member_nll", "c_ece", "a_accuracy"
                (on ImageNet-A), "diversity.kl", "diversity.disagreement_by_class.0",
                "ood.svhn.auroc" (by the highest probability), "attacks.fgsm.min" and so on.
            corruptions: What columns with c_ are means over; see `means`.

        Example:
            >>> scores = {"accuracy": 0.9, "nll": 0.3, "ece": 0.01}
            >>> found = Evaluation("toy", 100, (scores,), scores, scores)
            >>> found.value("accuracy"), found.value("member_nll"), found.value("c_ece")
            (0.9, 0.3, None)
        """
        part, *words = column.split(".")
        kind, _, key = column.partition("_")
        found: Any = {"member": self.member_mean, "c": self.means(corruptions)}.get(kind)
        if kind == "a":
            found = self.natural.get("imagenet-a", {}).get("200-way")
        if kind in ("member", "c", "a") and not words:
            words = [key]
        elif not words:
            found, words = {**self.more, **self.ensemble}, [column]
        else:
            found = getattr(self, part, None)
            if part == "ood" and len(words) == 2:
                words.insert(1, "max_probability")
        return _number(_at(found, words))


def _at(found: Any, words: Iterable[str]) -> Any:
    """What stands at a path of keys, fields and places."""
    for word in words:
        if isinstance(found, Mapping):
            found = found.get(word)
        elif isinstance(found, tuple) and word.isdecimal():
            found = dict(enumerate(found)).get(int(word))
        else:
            found = getattr(found, word, None)
    return found


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and math.isfinite(value)
    return float(value) if is_number else None


def choose_corruptions(evaluations: Iterable[Evaluation]) -> CorruptionSet | None:
    """The set of corruptions that most were tested on, of equals the best known; None if none was.

    Only means over one set can be compared: who was not tested on it has none.
    """
    shifts = [shift for each in evaluations if (shift := each.corrupted) is not None]
    had = [found for shift in shifts for found in shift.sets]
    had.sort(key=lambda found: CORRUPTION_SETS.index(found.name))
    return max(had, key=had.count, default=None)  # of equals, the first


def plain(value: Any) -> Any:
    """Typed values as plain ones, for a file: null for what is no number, nothing for no value."""
    if isinstance(value, TaskFacts):
        return value.as_dict()
    if is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {}
        for each in fields(value):
            item = getattr(value, each.name)
            optional = each.default is not MISSING or each.default_factory is not MISSING
            empty = item is None or (isinstance(item, (tuple, Mapping)) and not item)
            if optional and empty:
                continue
            # The scores of a shift stand beside its other values.
            found |= plain(item) if each.name == "scores" else {each.name: plain(item)}
        return found
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_if_whole(path: Path, kind: type[Kind]) -> Kind | None:
    """What a JSON file says, as a data class; None if it is damaged or not there."""
    try:
        found: Kind = read(kind, read_json(path), allow=Allow.RECORD)
    except NewerFileError:
        raise
    except FreeTicketsError:
        return None
    return found
