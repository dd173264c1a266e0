import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Exploration
from freetickets.sparsity.exploration import GradientRecord
from freetickets.sparsity.weight import MaskedWeight

from .training import Run


def weight_with(gradient=None):
    """A weight of two elements, and the gradient of the coming step."""
    weight = MaskedWeight("w", nn.Parameter(torch.zeros(2)), torch.ones(2, dtype=torch.bool))
    weight.parameter.grad = None if gradient is None else torch.tensor(gradient)
    return weight


def record_of(gradients, *, needs=("gradient",), window=1, wanted=True):
    record = GradientRecord(needs, window)
    for gradient in gradients:
        record.take([weight_with(gradient)], wanted)
        record.commit()
    return record


@pytest.mark.parametrize(
    ("gradients", "window", "expected"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], 1, [3, 4]),
        ([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]], 3, [3, 5]),
        ([[2.0, 4.0], None], 3, [1, 2]),  # a step without gradient counts as zero
        ([[1.0, 1.0]] * 3 + [[5.0, 5.0]], 3, [5, 5]),  # never more steps than asked for
    ],
)
def test_a_window_gives_the_mean_of_its_gradients(gradients, window, expected):
    assert record_of(gradients, window=window).of("w")[0].tolist() == expected


def test_what_nobody_wants_is_not_copied():
    for options, is_missing in (({"wanted": False}, True), ({"needs": ()}, False)):
        record = record_of([[1.0, 2.0]], **options)
        assert record.of("w") == (None, None)
        assert record.missing == is_missing


def test_an_unwanted_step_forgets_the_gradient_before_it():
    record = record_of([[1.0, 2.0]])
    assert not record.missing
    record.take([weight_with()], wanted=False)
    record.commit()
    assert record.missing


def test_what_is_dropped_leaves_no_trace():
    record = record_of([[1.0, 1.0]], needs=("gradient", "momentum"), window=4)
    record.keep = True
    record.take([weight_with([torch.inf, torch.nan])], wanted=True)
    record.taken = None
    gradient, momentum = record.of("w")
    assert gradient.tolist() == [1, 1]
    assert momentum.tolist() == pytest.approx([0.1, 0.1])
    # The wish to keep outlives the step that was not.
    record.take([weight_with([3.0, 5.0])], wanted=False)
    record.commit()
    assert record.of("w")[0].tolist() == [2, 3]


# ---- as the sparsifier uses it


def recorded(run):
    """The number of dense gradients in memory."""
    state = run.sparsifier.state_dict()["gradients"]
    return len(state["gradients"]) + len(state["momentum"])


@pytest.mark.parametrize("batches", [1, 2])
def test_dense_gradients_are_in_memory_only_around_an_exploration(batches):
    schedule = Exploration(interval=5, stop=10)
    run = Run(gradient_batches=batches, exploration=schedule, backend="auto")
    seen = []
    for step in range(14):
        run.backward(step)
        run.optimizer.step()
        seen.append(recorded(run) > 0)
        run.sparsifier.step()
    expected = {5, 10} if batches == 1 else {4, 5, 9, 10}
    assert seen == [step in expected for step in range(1, 15)]


class Copies(TorchDispatchMode):
    """Counts the tensors that are copied."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten.clone.default
        return function(*args, **(kwargs or {}))


def test_gradients_are_copied_only_for_the_step_that_needs_them():
    run = Run(exploration=Exploration(interval=3))
    copied = []
    for step in range(6):
        run.train([step])
        # The gradients of the step to come, as they are before the optimizer's step.
        with Copies() as copies:
            run.sparsifier.mask_gradients()
        copied.append(copies.count)
    assert copied == [0, 3, 0, 0, 3, 0]


@pytest.mark.parametrize("options", [{"exploration": None}, {"grow": "random"}])
def test_no_dense_gradient_is_kept_where_none_is_needed(options):
    run = Run(backend="auto", **options)
    for step in range(4):
        run.train([step])
        assert recorded(run) == 0
    before = run.digest
    if "grow" in options:  # and none is missed
        run.sparsifier.explore(0.5)
        assert run.digest != before


@pytest.mark.parametrize("grow", ["gradient", "momentum", {"gradient": 1, "random": 1}])
def test_exploring_before_any_gradient_is_refused(grow):
    with pytest.raises(FreeTicketsError, match="no dense gradient to grow by: call keep_gradients"):
        Run(grow=grow, exploration=None).sparsifier.explore(0.5)


def test_an_escape_may_follow_an_exploration_at_the_same_step():
    run = Run()
    assert run.train(range(2)) == [False, True]
    before = run.digest
    run.sparsifier.explore(0.8)
    assert run.digest != before


def test_gradients_zeroed_before_the_step_are_noticed():
    run = Run(exploration=Exploration(interval=1), backend="auto")
    run.backward()
    run.optimizer.zero_grad()
    run.optimizer.step()
    with pytest.raises(FreeTicketsError, match="no dense gradient"):
        run.sparsifier.step()
