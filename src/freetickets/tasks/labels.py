"""Labels: integers, booleans or strings, and the classes that they name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import FreeTicketsError

Label = bool | int | str


@dataclass(frozen=True)
class Classes:
    """The classes of a data set, in the order of a network's outputs."""

    names: tuple[str, ...]  # what people read
    values: tuple[Label, ...] = ()  # what labels say, if not the numbers of outputs, from 0 on

    @classmethod
    def of(cls, labels: npt.NDArray[Any]) -> Classes:
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

    def encode(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
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

    def decode(self, outputs: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return the labels that outputs stand for."""
        return np.array(self.values)[outputs] if self.values else outputs


def _check_not_negative(labels: npt.NDArray[Any]) -> None:
    if labels.min(initial=0) < 0:
        told = "labels count from 0; where it is the name of a class, give strings"
        raise FreeTicketsError(f"y has the label {labels.min()}: {told}")


def as_labels(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
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
