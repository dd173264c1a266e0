"""Classification: one of several classes for each sample, the default task."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import FreeTicketsError, is_out_of_memory
from ..metrics.predictive import ensemble_log_probs
from ..metrics.score import MAIN_SCORES, Score
from ..metrics.uncertainty import Uncertainty
from .task import AnyArray, Array, Classes, Task, as_labels

if TYPE_CHECKING:
    from torch import Tensor

    from ..data.spec import DatasetSpec


@dataclass(frozen=True)
class Classification(Task):
    """One of several classes; networks return their scores (logits), members log-probabilities.

    Attributes:
        class_weights: How much each class counts in training, in the order of the classes.
        label_smoothing: Label smoothing of the cross-entropy in training; None for the recipe's.
        loss: A function of your own, which takes a network's outputs (N, C) and labels (N,) and
            returns the mean loss.

    Example:
        >>> Classification(class_weights=[1, 3]).options
        {'class_weights': [1.0, 3.0]}
    """

    running: ClassVar[Score] = Score("accuracy", "accuracy", ".1%", higher_is_better=True)
    rules: ClassVar[tuple[str, ...]] = ("probabilities", "logits")
    has_classes: ClassVar[bool] = True

    class_weights: tuple[float, ...] | None = None
    label_smoothing: float | None = None
    loss: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.loss is not None and not callable(self.loss):
            raise FreeTicketsError(f"loss must be a function, not {self.loss!r}")
        if self.class_weights is None:
            return
        weights = tuple(map(float, self.class_weights))
        object.__setattr__(self, "class_weights", weights)
        if not all(0 <= weight < math.inf for weight in weights) or not sum(weights):
            raise FreeTicketsError(f"class weights must be numbers from 0 up, not {weights}")
        if self.loss is not None:
            raise FreeTicketsError("with your own loss, let it weigh the classes: no class weights")

    def classes_of(self, y: AnyArray) -> Classes:
        """The classes that labels name."""
        return Classes.of(as_labels(y))

    def targets(self, y: AnyArray, classes: Classes) -> AnyArray:
        """The numbers of the classes that labels name, int64 (N,)."""
        return classes.encode(as_labels(y))

    def outputs(self, spec: DatasetSpec) -> int:
        """One score for each class."""
        return len(spec.classes)

    def batch_loss(self, outputs: Tensor, targets: Tensor, training: bool = True) -> Tensor:
        """The cross-entropy, weighted and smoothed in training; or your own loss."""
        if self.loss is not None:
            return self.loss(outputs, targets)
        import torch
        from torch.nn.functional import cross_entropy

        options: dict[str, Any] = {}
        if training:
            options["label_smoothing"] = self.label_smoothing or 0.0
            if self.class_weights is not None:
                options["weight"] = torch.tensor(self.class_weights).to(outputs)
        try:
            return cross_entropy(outputs, targets, **options)
        except (IndexError, RuntimeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            if self.class_weights is not None and outputs.shape[-1] != len(self.class_weights):
                counts = f"{len(self.class_weights)} class weights, and {outputs.shape[-1]} classes"
                raise FreeTicketsError(f"there are {counts}: give one for each") from error
            raise FreeTicketsError(
                f"the network's outputs have the shape {tuple(outputs.shape)}, for {len(targets)} "
                f"labels up to {int(targets.max())}: it must return a score for each class"
            ) from error

    def sample_scores(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 where the class is right, 0 where it is wrong."""
        return outputs.argmax(-1) == targets

    def guess(self, targets: Tensor, outputs: int) -> float:
        """The cross-entropy of giving all outputs the same probability."""
        return math.log(outputs) if self.loss is None else math.inf

    def predictions(self, outputs: Tensor) -> Array:
        """Log-probabilities of the classes."""
        return outputs.double().log_softmax(-1).cpu().numpy()

    def joined(self, members: AnyArray, rule: str) -> Array:
        """The log-probabilities of the ensemble."""
        return ensemble_log_probs(members, rule)

    def uncertainty(self, members: Array, prediction: Array) -> Uncertainty:
        """Total, aleatoric and epistemic."""
        return Uncertainty.of(members, prediction)

    def answers(self, prediction: Array, classes: Classes) -> AnyArray:
        """The most probable class of each sample, named as in the training labels."""
        # A network may have more outputs than there are classes; those have no name.
        return classes.decode(prediction[:, : len(classes.names)].argmax(axis=-1))

    def columns(self, prediction: Array, classes: Classes) -> Mapping[str, AnyArray]:
        """The name of the most probable class, and its probability."""
        probabilities = np.exp(prediction)[:, : len(classes.names)]
        names = np.array(classes.names)[probabilities.argmax(axis=-1)]
        return {"class": names, "probability": probabilities.max(axis=-1)}

    @property
    def scores(self) -> tuple[Score, ...]:
        """Accuracy, NLL and ECE, as `freetickets.metrics.score` defines them."""
        return MAIN_SCORES

    def check_saved(self, predictions: AnyArray, targets: AnyArray) -> None:
        """Raises a ValueError unless these are log-probabilities (M, N, C) and labels (N,)."""
        if predictions.ndim != 3 or targets.shape != predictions.shape[1:2]:
            raise ValueError(f"predictions {predictions.shape} of labels {targets.shape}")
        if predictions.dtype.kind != "f" or targets.dtype.kind not in "iu":
            raise ValueError(f"predictions are {predictions.dtype}, labels {targets.dtype}")
        if not (predictions < math.inf).all():  # minus infinity is what a class may get
            raise ValueError("log-probabilities that are not numbers")
        # -1 is the label of samples of no class.
        if targets.size and not -1 <= targets.min() <= targets.max() < predictions.shape[2]:
            raise ValueError(f"labels from {targets.min()} to {targets.max()}")
