import numpy as np
import pytest
import torch

from freetickets.data.samples import as_array
from freetickets.tasks.task import Classes
from freetickets.tasks.task import as_labels as labels_of


def as_labels(y):
    return labels_of(as_array(y, "y"))


class Column:
    """A column of a data frame, as far as anyone can tell."""

    def __init__(self, values):
        self._values = values

    def to_numpy(self):
        return np.array(self._values, dtype=object)


@pytest.mark.parametrize(
    ("labels", "names", "outputs"),
    [
        ([1, 2, 3, 2], ("1", "2", "3"), [0, 1, 2, 1]),
        ([10, 30, 10, 20], ("10", "20", "30"), [0, 2, 0, 1]),
        ([1.0, 2.0, 2.0], ("1", "2"), [0, 1, 1]),
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 0, 1]),
        ([True, False, True], ("False", "True"), [1, 0, 1]),
        (torch.tensor([True, False]), ("False", "True"), [1, 0]),
        (Column(["b", "a"]), ("a", "b"), [1, 0]),
        (Column([2, 1]), ("1", "2"), [1, 0]),
        (Column([["b"], ["a"]]), ("a", "b"), [1, 0]),
        ([0, 2, 1], ("0", "1", "2"), [0, 2, 1]),
        (np.array([0, 3], np.uint8), ("0", "1", "2", "3"), [0, 3]),  # as PyTorch numbers classes
    ],
)
def test_labels_become_outputs_and_keep_their_names(labels, names, outputs):
    read = as_labels(labels)
    classes = Classes.of(read)
    assert classes.names == names
    assert classes.encode(read).tolist() == outputs
    if classes.values:
        assert [classes.values[output] for output in outputs] == read.tolist()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.5, 1.0], "the value 0.5, which is not a class"),
        ([1.0, np.nan], "the value nan"),
        ([1.0, np.inf], "the value inf"),
        ([[0, 1], [1, 0]], r"int64 of shape \(2, 2\): labels are integers, booleans or strings"),
        (Column(["a", None]), "labels are integers, booleans or strings"),
        (Column(["a", 1]), "labels are integers, booleans or strings"),
        ([b"a", b"b"], "labels are integers, booleans or strings"),
    ],
)
def test_what_is_no_label_is_refused(refused, labels, message):
    refused(message, as_labels, labels)


NAMED, NUMBERED = Classes(("cat", "dog"), ("cat", "dog")), Classes(("cat", "dog"))


@pytest.mark.parametrize(
    ("read", "labels", "message"),
    [
        (Classes.of, np.array([-1, 1]), r"label -1: labels count from 0; .* give strings"),
        (Classes.of, np.array(["a", "a"]), "all labels are 'a': give samples of two"),
        (NAMED.encode, np.array(["dog", "cow"]), "label 'cow', which is not a class of the train"),
        (NUMBERED.encode, np.array([True, False]), "from 0"),
        (NUMBERED.encode, np.array([-1, 0]), "from 0"),
    ],
)
def test_classes_that_can_not_be_meant_are_refused(refused, read, labels, message):
    refused(message, read, labels)
    assert NUMBERED.encode(as_labels([1, 0])).tolist() == [1, 0]
    assert NUMBERED.encode(as_labels(["dog", "cat"])).tolist() == [1, 0]
