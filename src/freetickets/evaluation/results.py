"""The results of an evaluation: what metrics.json says, typed; read and written here alone."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from ..calibration import Temperature
from ..cascade import Cascade
from ..errors import FreeTicketsError, NewerFileError
from ..metrics.arrays import Array
from ..metrics.score import MAIN_SCORES
from ..reading import Allow, Count, Natural, Text, damaged, must, read, read_json
from ..storage import write_json
from ..tasks import CLASSIFICATION, Score, Task, task_name

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
    if (array := _grid(value)).shape[0] != array.shape[1]:
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
    _within_limits(found := later | dict(found), MAIN_SCORES)
    return found


# What files say of a score: not its functions, which would be code.
_SCORE_FACTS = ("key", "title", "form", "higher_is_better", "name", "short")
_ALWAYS = ("accuracy", "nll", "ece")  # every version has measured these

Square = Annotated[Array, _square]
# A little above 1 is what rounding does; NaN is what was not measured.
Rate = Annotated[float, must("be a share", lambda share: not (share < 0 or share > 1 + 1e-6))]
Values = Mapping[Text, float]  # scores by their keys
ClassValues = Annotated[Values, _of_classes]


@dataclass(frozen=True)
class Diversity:
    """How much the members differ, on average over pairs; `kl` counts each in both orders."""

    disagreement: float
    kl: float
    kl_one_way: float
    disagreement_matrix: Square
    kl_matrix: Square  # row i, column j is KL(p_i || p_j)
    disagreement_by_class: tuple[float, ...] = ()


@dataclass(frozen=True)
class CorruptionSet:
    """What a mean over corruptions is over: only means over the same can be compared."""

    name: str
    severities: tuple[int, ...]
    types: tuple[str, ...] = ()  # where the set is "given"; other names say which


@dataclass(frozen=True)
class Shift:
    """The scores of the ensemble on corrupted test samples; means are over all severities."""

    source: Text | None  # "generated" or "folder"
    samples: Natural  # of each set
    types: tuple[Text, ...]
    severities: tuple[int, ...]
    scores: Mapping[Text, Annotated[Array, _grid]]  # by key, of types and severities, (T, S)
    means: Mapping[Text, ClassValues]  # by the name of a set of corruptions; "ece_pooled" too
    frost: Text | None = None  # what it was made of

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
    if missing := [key for key in _ALWAYS if key not in values]:
        raise ValueError(f"lacks {', '.join(missing)}")
    scores = {score.key: values[score.key] for score in MAIN_SCORES if score.key in values}
    return read(Shift, {**values, "scores": scores}, allow=Allow.RECORD)


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
    """Accuracies under one kind of attack: the ensemble's, and of each member in `transfer`."""

    epsilon: float  # how far a pixel may be moved, of 0 to 1
    samples: Natural
    clean: Rate  # on the same samples untouched
    min: Rate
    mean: Rate
    max: Rate
    transfer: Square  # row k, column m: of member m under the attack made for member k
    steps: int | None = None  # not saved in old files
    ensemble: tuple[Rate, ...] = ()  # under the attack made for each member


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
    """What only the networks can tell of themselves: the content of networks.json."""

    tickets: str | None = None
    layers: tuple[Layer, ...] = ()  # none if all are dense
    features: tuple[Feature, ...] = ()
    feature_samples: Natural = 0


@dataclass(frozen=True)
class Adjusted:
    """What `evaluate --select`, `--temperature` and `--cascade` found; members count from 1."""

    chosen: tuple[Count, ...]
    tickets: str | None
    temperature: Temperature | None
    members: tuple[Values, ...] = ()
    member_mean: Values = field(default_factory=dict)
    ensemble: Values = field(default_factory=dict)
    cascade: Cascade | None = None
    asked: tuple[Natural, ...] = ()  # how many samples it asked 1, 2, ... members about
    in_turn: Values = field(default_factory=dict)  # the scores of its answers
    seconds: tuple[float, ...] = ()  # a sample takes in turn, and by all members

    @property
    def mean_asked(self) -> float:
        """How many members the cascade asks about a sample, on average."""
        return sum(m * count for m, count in enumerate(self.asked, start=1)) / sum(self.asked)


def _score(value: Any) -> Score:
    facts = read(Mapping[str, Any], value)
    told = {key: facts[key] for key in _SCORE_FACTS if key in facts}
    return read(Score, told, allow=Allow.RECORD)


@dataclass(frozen=True)
class TaskFacts:
    """What metrics.json says of a task, so that its scores can be shown without its code."""

    name: Text
    running: Annotated[Score, _score]
    scores: Annotated[tuple[Annotated[Score, _score], ...], must("name a score", bool)]
    has_classes: bool = False

    @classmethod
    def of(cls, task: Task) -> "TaskFacts":
        """The facts of a task."""
        return cls(task_name(task), task.running, task.scores, task.has_classes)

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain data."""
        running, *scores = (
            {name: getattr(score, name) for name in _SCORE_FACTS}
            for score in (self.running, *self.scores)
        )
        return {**vars(self), "running": running, "scores": scores}


@dataclass(frozen=True)
class Evaluation:
    """All that was measured of a run: the content of metrics.json."""

    dataset: str
    samples: Natural
    members: Annotated[tuple[Values, ...], must("name a member", bool)]
    member_mean: Values
    ensemble: Values  # of the members' joint prediction
    temperature: Temperature | None = None
    settings: str | None = None  # the identity of the run's
    more: Values = field(default_factory=dict)  # further scores of classes
    diversity: Diversity | None = None  # of several members
    shift: Mapping[Text, Annotated[Shift, _shift]] = field(default_factory=dict)
    # By the name of a set, and by how many classes were counted: "200-way".
    natural: Mapping[Text, Mapping[Text, ClassValues]] = field(default_factory=dict)
    ood: Mapping[Text, Unknown] = field(default_factory=dict)
    attacks: Mapping[Text, Attack] = field(default_factory=dict)
    features: tuple[Feature, ...] = ()
    layers: tuple[Layer, ...] = ()
    adjusted: Adjusted | None = None
    # Files of classification don't say it.
    task: TaskFacts = field(default_factory=lambda: TaskFacts.of(CLASSIFICATION))

    def __post_init__(self) -> None:
        if self.task.name == task_name(CLASSIFICATION):
            object.__setattr__(self, "members", tuple(map(_of_classes, self.members)))
            object.__setattr__(self, "member_mean", _of_classes(self.member_mean))
            object.__setattr__(self, "ensemble", _of_classes(self.ensemble))
        for found in (*self.members, self.member_mean, self.ensemble):
            _within_limits(found, self.task.scores)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Evaluation":
        """Makes it of the values of `as_dict` or a record, where null is no finite number."""
        return read(cls, values, allow=Allow.RECORD)

    @classmethod
    def load(cls, path: Path) -> "Evaluation":
        """Reads metrics.json."""
        values = read_json(path)
        with damaged(path):
            return cls.of(values)

    def save(self, path: Path) -> None:
        """Writes metrics.json."""
        write_json(path, self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """The plain values of metrics.json; what was not measured is left out, or None."""
        found: dict[str, Any] = plain(self)
        if self.task.name == task_name(CLASSIFICATION):  # as all were once
            del found["task"]
        return found

    @property
    def predictors(self) -> dict[str, Values]:
        """The scores of each member and, of several, of their mean and of the ensemble."""
        found = {f"member {number}": of for number, of in enumerate(self.members, start=1)}
        joint = {"member mean": self.member_mean, "ensemble": self.ensemble}
        return found | joint if len(found) > 1 else found

    @property
    def corrupted(self) -> Shift | None:
        """What was scored on the corrupted samples of the test set itself."""
        first = next(iter(self.shift.values()), None)
        return self.shift.get(f"{Path(self.dataset).stem}-c", first)

    def means(self, corruptions: CorruptionSet | None = None) -> Values | None:
        """The means over a set of corruptions, or the best known; None if it was not measured."""
        shift = self.corrupted
        if shift is None or not shift.sets or corruptions not in (None, *shift.sets):
            return None
        return shift.means[(corruptions or shift.sets[0]).name]

    def value(self, column: str, corruptions: CorruptionSet | None = None) -> float | None:
        """The number of a column, such as "c_ece" or "ood.svhn.auroc"; None: not measured."""
        part, *words = column.split(".")
        kind, _, key = column.partition("_")
        found: Any = getattr(self, part, None)
        if part == "ood" and len(words) == 2:
            words.insert(1, "max_probability")
        elif not words and kind in ("member", "c", "a"):
            natural = self.natural.get("imagenet-a", {}).get("200-way")
            of_kind = {"member": self.member_mean, "c": self.means(corruptions), "a": natural}
            found, words = of_kind[kind], [key]
        elif not words:
            found, words = {**self.more, **self.ensemble}, [column]
        for word in words:
            if isinstance(found, tuple) and word.isdecimal():
                found = dict(enumerate(found)).get(int(word))
            else:
                is_mapping = isinstance(found, Mapping)
                found = found.get(word) if is_mapping else getattr(found, word, None)
        is_number = isinstance(found, (int, float)) and math.isfinite(found)
        return float(found) if is_number else None


def choose_corruptions(evaluations: Iterable[Evaluation]) -> CorruptionSet | None:
    """The set of corruptions that most were tested on, of equals the best known."""
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
        return read(kind, read_json(path), allow=Allow.RECORD)
    except NewerFileError:
        raise
    except FreeTicketsError:
        return None
