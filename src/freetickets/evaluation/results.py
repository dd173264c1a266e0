"""The results of a run: what metrics.json says, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from ..calibration import Temperature
from ..errors import FreeTicketsError, NewerFileError
from ..reading import Allow, Count, Natural, Text, must, read, read_json
from ..tasks import CLASSIFICATION, Score, Task, task_name

Array = npt.NDArray[np.float64]


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


Grid = Annotated[Array, _grid]
Square = Annotated[Array, _square]
# A little above 1 is what rounding does; NaN is what was not measured.
Rate = Annotated[float, must("be a share", lambda share: not (share < 0 or share > 1 + 1e-6))]


@dataclass(frozen=True)
class Scores:
    """How good a member or an ensemble is on a test set."""

    accuracy: Rate
    nll: float
    ece: Rate


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
    disagreement_matrix: Square
    kl_matrix: Square


@dataclass(frozen=True)
class ShiftMeans:
    """The means over a set of corruptions and all severities."""

    accuracy: Rate
    nll: float
    ece: Rate
    ece_pooled: Rate


@dataclass(frozen=True)
class Shift:
    """The scores of the ensemble on corrupted test samples.

    Attributes:
        source: Where they come from: "generated" or "folder".
        samples: The size of each set.
        types: The corruptions.
        severities: Of each.
        accuracy: (T, S), as are the other scores.
        nll: (T, S).
        ece: (T, S).
        means: By the name of the set of corruptions.
        frost: What generated frost was made of, if it was.
    """

    source: Text | None
    samples: Natural
    types: tuple[Text, ...]
    severities: tuple[int, ...]
    accuracy: Grid
    nll: Grid
    ece: Grid
    means: Mapping[Text, ShiftMeans]
    frost: Text | None = None

    def __post_init__(self) -> None:
        shape = (len(self.types), len(self.severities))
        for name in ("accuracy", "nll", "ece"):
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} is of the shape {getattr(self, name).shape}, not {shape}")

    @property
    def origin(self) -> str:
        """Where the samples come from, in words."""
        return f"{self.source}" + (", synthetic frost" if self.frost == "synthetic" else "")


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
    """

    epsilon: float
    samples: Natural
    clean: Rate
    min: Rate
    mean: Rate
    max: Rate
    transfer: Square
    steps: int | None = None


@dataclass(frozen=True)
class Feature:
    """How far apart the members are in one layer."""

    layer: Text
    kl: float


@dataclass(frozen=True)
class Layer:
    """How dense a weight is in each ticket."""

    name: Text
    density: Annotated[tuple[Rate, ...], must("name a ticket", bool)]


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
    tickets: str | None = None
    temperature: Temperature | None = None


@dataclass(frozen=True)
class Results:
    """The parts of metrics.json that not every run has."""

    more: Mapping[Text, float] = field(default_factory=dict)
    diversity: Diversity | None = None
    shift: Mapping[Text, Shift] = field(default_factory=dict)
    natural: Mapping[Text, Mapping[Text, Scores]] = field(default_factory=dict)
    ood: Mapping[Text, Unknown] = field(default_factory=dict)
    attacks: Mapping[Text, Attack] = field(default_factory=dict)
    features: tuple[Feature, ...] = ()
    layers: tuple[Layer, ...] = ()
    adjusted: Adjusted | None = None


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
class MainScores:
    """The parts of metrics.json that every run has.

    Attributes:
        dataset: The data set that the run was tested on.
        samples: How many samples that test had.
        members: The scores of each member.
        member_mean: The mean of those.
        ensemble: The scores of the members' joint prediction.
        settings: The identity of the run's settings.
        task: What was learned; files of classification don't say it.
    """

    dataset: str
    samples: Natural
    members: Annotated[tuple[Mapping[Text, float], ...], must("name a member", bool)]
    member_mean: Mapping[Text, float]
    ensemble: Mapping[Text, float]
    settings: str | None = None
    task: TaskFacts = field(default_factory=lambda: TaskFacts.of(CLASSIFICATION))

    def __post_init__(self) -> None:
        for found in (*self.members, self.member_mean, self.ensemble):
            for score in self.task.scores:
                if score.key not in found:
                    raise ValueError(f"has no {score.key}")
                low, high = score.limits
                if found[score.key] < low or found[score.key] > high:
                    raise ValueError(f"{score.key} can't be {found[score.key]}")


def read_values(path: Path, kind: type) -> dict[str, Any] | None:
    """The values of a JSON file; none, if it does not exist; None, if it is damaged.

    Args:
        path: The file.
        kind: The data class that has the types of its values.
    """
    if not path.exists():
        return {}
    try:
        found = read_json(path)
        read(kind, found, allow=Allow.RECORD)
    except NewerFileError:
        raise
    except FreeTicketsError:
        return None
    return found
