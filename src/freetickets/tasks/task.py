"""What every task is, and what labels are. No torch here: a task imports it when it works."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError
from ..metrics.score import Score

if TYPE_CHECKING:
    from torch import Tensor

    from ..data.spec import DatasetSpec

Array = npt.NDArray[np.float64]
AnyArray = npt.NDArray[Any]
Label = bool | int | str


@dataclass(frozen=True)
class Classes:
    """The classes of a data set, in the order of a network's outputs."""

    names: tuple[str, ...]  # what people read
    values: tuple[Label, ...] = ()  # what labels say, if not the numbers of outputs, from 0 on

    @classmethod
    def of(cls, labels: AnyArray) -> Classes:
        """Return the classes of labels that `as_labels` has read.

        Integers that begin with 0 number the outputs, as PyTorch has it, even where one of them is
        missing. All other labels are the names of classes, in their order.

        Example:
            >>> Classes.of(np.array([0, 1, 3])).names, Classes.of(np.array([1, 3, 1])).names
            (('0', '1', '2', '3'), ('1', '3'))
        """
        if labels.dtype.kind in "iu" and labels.min() <= 0:
            _check_not_negative(labels)
            return cls(tuple(map(str, range(int(labels.max()) + 1))))
        values = tuple(np.unique(labels).tolist())
        if len(values) < 2:
            raise FreeTicketsError(f"all labels are {values[0]!r}: give samples of two classes")
        return cls(tuple(map(str, values)), values)

    def encode(self, labels: AnyArray) -> npt.NDArray[np.int64]:
        """Return the outputs that labels stand for; strings may always be names."""
        known: tuple[Label, ...] = self.values or (self.names if labels.dtype.kind == "U" else ())
        if not known:
            if labels.dtype.kind == "b":
                raise FreeTicketsError("y is booleans: the classes are numbered from 0")
            _check_not_negative(labels)
            return labels.astype(np.int64)
        found, places = np.unique(labels, return_inverse=True)
        outputs = {value: output for output, value in enumerate(known)}
        if strange := [value for value in found.tolist() if value not in outputs]:
            told = "which is not a class of the training data"
            raise FreeTicketsError(f"y has the label {strange[0]!r}, {told}")
        return np.array([outputs[value] for value in found.tolist()], np.int64)[places]

    def decode(self, outputs: npt.NDArray[np.int64]) -> AnyArray:
        """Return the labels that outputs stand for."""
        return np.array(self.values)[outputs] if self.values else outputs


def _check_not_negative(labels: AnyArray) -> None:
    if labels.min(initial=0) < 0:
        told = "labels count from 0; where it is the name of a class, give strings"
        raise FreeTicketsError(f"y has the label {labels.min()}: {told}")


def as_labels(y: AnyArray) -> AnyArray:
    """Return labels as integers, booleans or strings (N,), after checking them.

    Floats that are whole are labels too, and objects that are all of one type.
    """
    # A data frame of one column is one too.
    labels = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if labels.dtype.kind in "OT" and labels.size:  # of data frames; a mixture is not a label
        kinds = {type(label) for label in labels.flat}
        kind = kinds.pop() if len(kinds) == 1 else None
        labels = labels.astype(kind) if kind in (bool, int, float, str) else labels
    if labels.dtype.kind == "f" and labels.ndim == 1:
        with np.errstate(invalid="ignore"):
            whole = np.isfinite(labels) & (labels == np.floor(labels))
        if not whole.all():
            told = f"y has the value {labels[~whole][0]:g}, which is not a class"
            raise FreeTicketsError(f"{told}: labels are whole numbers, booleans or strings")
        labels = labels.astype(np.int64)
    if labels.ndim != 1 or labels.dtype.kind not in "biuU":
        told = f"y is {labels.dtype} of shape {labels.shape}"
        raise FreeTicketsError(f"{told}: labels are integers, booleans or strings of shape (N,)")
    return labels


@dataclass(frozen=True)
class Task(ABC):
    """A task: everything else asks it what a network's outputs are for.

    A subclass is a frozen data class whose fields are the task's options. Arrays of predictions
    have the members first: (M, N, ...).
    """

    running: ClassVar[Score]  # what the log shows, and by which validation selects the best ticket
    rules: ClassVar[tuple[str, ...]] = ("mean",)  # how members can be combined, the default first
    has_classes: ClassVar[bool] = False  # calibration, corruptions, attacks and the like ask this

    def classes_of(self, y: AnyArray) -> Classes:
        """The classes that targets name; by default targets are numbers and name none."""
        return Classes(())

    def targets(self, y: AnyArray, classes: Classes) -> AnyArray:
        """The given targets as a network learns them, (N, ...); by default in float32."""
        if y.ndim < 1 or y.dtype.kind not in "biuf":
            told = f"y is {y.dtype} of shape {y.shape}"
            raise FreeTicketsError(f"{told}: labels of this task are numbers (N, ...)")
        with np.errstate(over="ignore"):  # what float32 can't hold is infinite there
            numbers = y.astype(np.float32)
        if not np.isfinite(numbers).all():
            raise FreeTicketsError("y has values that are not finite numbers: replace them")
        return numbers

    def outputs(self, spec: DatasetSpec) -> int:
        """How many outputs a network needs for a data set."""
        return max(1, math.prod(spec.target_shape))

    @abstractmethod
    def batch_loss(self, outputs: Tensor, targets: Tensor, training: bool = True) -> Tensor:
        """The mean loss of outputs (N, ...), to learn from (`training`) or to show people."""

    @abstractmethod
    def sample_scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What each sample adds to the running score, (N,)."""

    def logged(self, mean: float) -> float:
        """The running score, from the mean of `sample_scores`: that mean, or its root, say."""
        return mean

    def guess(self, targets: Tensor, outputs: int) -> float:
        """The loss of guessing all targets; far above it a training has diverged."""
        return math.inf

    def predictions(self, outputs: Tensor) -> Array:
        """A network's predictions in the form that is stored; by default its outputs."""
        return outputs.double().cpu().numpy()

    @abstractmethod
    def joined(self, members: AnyArray, rule: str) -> Array:
        """The joint prediction (N, ...) of members (M, N, ...), by one of the `rules`."""

    @abstractmethod
    def uncertainty(self, members: Array, prediction: Array) -> Any:
        """How unsure an ensemble is about each sample: a data class of arrays (N, ...)."""

    def answers(self, prediction: Array, classes: Classes) -> AnyArray:
        """What `Ensemble.predict` returns for a prediction (N, ...): by default the prediction."""
        return prediction

    def columns(self, prediction: Array, classes: Classes) -> Mapping[str, AnyArray]:
        """What `freetickets predict` prints for a prediction (N, ...): one value per sample."""
        return {"prediction": self.answers(prediction, classes)}

    @property
    @abstractmethod
    def scores(self) -> tuple[Score, ...]:
        """The scores of predictions, in the order of tables; figures show the first two."""

    def measure(self, members: AnyArray, targets: AnyArray) -> dict[str, float]:
        """All scores of a prediction (1, N, ...)."""
        return {each.key: each.function(members, targets) for each in self.scores if each.function}

    def check_saved(self, predictions: AnyArray, targets: AnyArray) -> None:
        """Raises a ValueError if arrays read from a file are not predictions of this task."""
        if predictions.ndim < 2 or predictions.shape[1] != len(targets):
            raise ValueError(f"predictions {predictions.shape} of targets {targets.shape}")
        if predictions.dtype.kind != "f" or targets.dtype.kind not in "fiu":
            raise ValueError(f"predictions are {predictions.dtype}, targets {targets.dtype}")
        if not (np.isfinite(predictions).all() and np.isfinite(targets).all()):
            raise ValueError("predictions or targets that are not numbers")

    @property
    def options(self) -> dict[str, Any]:
        """The options that are not the default, as plain data; functions by their names."""
        found: dict[str, Any] = {}
        for each in fields(self):
            if (value := getattr(self, each.name)) != each.default:
                value = function_name(value) if callable(value) else value
                found[each.name] = list(value) if isinstance(value, tuple) else value
        return found


def function_name(value: Any) -> str:
    """Where a class or a function is found, as "module:name"."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"
