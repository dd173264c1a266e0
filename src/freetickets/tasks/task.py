"""What every task is. No torch here: a task imports what it needs when it works."""

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
from .labels import Classes

if TYPE_CHECKING:
    from torch import Tensor

    from ..data.spec import DatasetSpec

Array = npt.NDArray[np.float64]
AnyArray = npt.NDArray[Any]


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
        """The classes that targets name; by default they are numbers, and name none."""
        return Classes(())

    def targets(self, y: AnyArray, classes: Classes) -> AnyArray:
        """Targets as a network learns them, of what was given, (N, ...); by default in float32."""
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
        """The mean loss of outputs (N, ...), to be learned from (`training`), or for people."""

    @abstractmethod
    def sample_scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What each sample adds to the running score, (N,)."""

    def logged(self, mean: float) -> float:
        """The running score, made of the mean of `sample_scores`: that mean, or its root, say."""
        return mean

    def guess(self, targets: Tensor, outputs: int) -> float:
        """The loss of guessing all targets; far above it a training has diverged."""
        return math.inf

    def predictions(self, outputs: Tensor) -> Array:
        """What a network's outputs say, in the form that is stored; by default the outputs."""
        found: Array = outputs.double().cpu().numpy()
        return found

    @abstractmethod
    def joined(self, members: AnyArray, rule: str) -> Array:
        """What members (M, N, ...) say together by one of the `rules`, (N, ...)."""

    @abstractmethod
    def uncertainty(self, members: Array, prediction: Array) -> Any:
        """How unsure an ensemble is of each sample: a data class of arrays (N, ...)."""

    def answers(self, prediction: Array, classes: Classes) -> AnyArray:
        """What `Ensemble.predict` returns of a prediction (N, ...): by default the prediction."""
        return prediction

    def columns(self, prediction: Array, classes: Classes) -> Mapping[str, AnyArray]:
        """What `freetickets predict` prints of a prediction (N, ...), each one value a sample."""
        return {"prediction": self.answers(prediction, classes)}

    @property
    @abstractmethod
    def scores(self) -> tuple[Score, ...]:
        """The scores of predictions, in the order of tables; figures show the first two."""

    def measure(self, members: AnyArray, targets: AnyArray) -> dict[str, float]:
        """All scores of a prediction (1, N, ...)."""
        return {each.key: each.function(members, targets) for each in self.scores if each.function}

    def check_saved(self, predictions: AnyArray, targets: AnyArray) -> None:
        """Raises a ValueError if arrays that were read are not predictions of this task."""
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
