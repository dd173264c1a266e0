import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from freetickets.errors import FreeTicketsError
from freetickets.sparsity import Exploration, Sparsifier
from freetickets.sparsity.gradients import GradientRecord
from freetickets.sparsity.weight import MaskedWeight


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


def test_only_the_last_gradient_counts_without_a_window():
    assert record_of([[1.0, 2.0], [3.0, 4.0]]).gradient("w").tolist() == [3, 4]


def test_a_window_gives_the_mean_and_a_step_without_gradient_counts_as_zero():
    record = record_of([[1.0, 2.0], [3.0, 4.0], [5.0, 9.0]], window=3)
    assert record.gradient("w").tolist() == [3, 5]
    assert record_of([[2.0, 4.0], None], window=3).gradient("w").tolist() == [1, 2]


def test_a_window_never_holds_more_steps_than_asked_for():
    assert record_of([[1.0, 1.0]] * 3 + [[5.0, 5.0]], window=3).gradient("w").tolist() == [5, 5]


def test_what_nobody_wants_is_not_copied():
    record = record_of([[1.0, 2.0]], wanted=False)
    assert record.gradient("w") is None
    assert record.missing
    record = record_of([[1.0, 2.0]], needs=())
    assert record.gradient("w") is None
    assert not record.missing


def test_an_unwanted_step_forgets_the_gradient_before_it():
    record = record_of([[1.0, 2.0]])
    assert not record.missing
    record.take([weight_with()], wanted=False)
    record.commit()
    assert record.missing


def test_the_running_mean_needs_no_window():
    record = record_of([[1.0, -2.0], [1.0, 0.0]], needs=("momentum",), wanted=False)
    assert record.momentum("w").tolist() == pytest.approx([0.19, -0.18])
    assert record.gradient("w") is None
    assert not record.missing


def test_what_is_dropped_leaves_no_trace():
    record = record_of([[1.0, 1.0]], needs=("gradient", "momentum"), window=4)
    record.keep()
    record.take([weight_with([torch.inf, torch.nan])], wanted=True)
    assert record.taken
    record.drop()
    assert not record.taken
    assert record.gradient("w").tolist() == [1, 1]
    assert record.momentum("w").tolist() == pytest.approx([0.1, 0.1])
    # The wish to keep outlives the step that was not.
    record.take([weight_with([3.0, 5.0])], wanted=False)
    record.commit()
    assert record.gradient("w").tolist() == [2, 3]


def test_what_is_taken_is_a_copy():
    record = GradientRecord(("gradient",), 1)
    weight = weight_with([1.0, 1.0])
    record.take([weight], wanted=True)
    weight.parameter.grad.zero_()
    record.commit()
    assert record.gradient("w").tolist() == [1, 1]


def test_a_state_dict_shares_nothing_with_the_record():
    record = record_of([[1.0, 1.0]], needs=("gradient", "momentum"), window=3)
    state = record.state_dict()
    other = GradientRecord(("gradient", "momentum"), 3)
    other.load_state_dict(state, {"w": torch.device("cpu")})
    for each in (record, other):
        each.take([weight_with([1.0, 1.0])], wanted=True)
        each.commit()
    assert state["momentum"]["w"].tolist() == pytest.approx([0.1, 0.1])
    assert state["gradients"]["w"].tolist() == [1, 1]
    assert torch.equal(record.momentum("w"), other.momentum("w"))


# ---- as the sparsifier uses it


def prepared(**options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 12), nn.Linear(12, 8))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.5, distribution="uniform", **options)

    def train(step=True):
        optimizer.zero_grad()
        network(torch.randn(6, 10)).square().mean().backward()
        optimizer.step()
        return sparsifier.step() if step else None

    return sparsifier, train


def recorded(sparsifier):
    """The number of dense gradients in memory."""
    state = sparsifier.state_dict()["gradients"]
    return len(state["gradients"]) + len(state["momentum"])


@pytest.mark.parametrize("batches", [1, 2])
def test_dense_gradients_are_in_memory_only_around_an_exploration(batches):
    sparsifier, train = prepared(
        gradient_batches=batches, exploration=Exploration(interval=5, stop=10)
    )
    seen, due = [], []
    for _ in range(14):
        due.append(sparsifier.due)
        train(step=False)
        seen.append(recorded(sparsifier) > 0)
        sparsifier.step()
    assert due == [step in (5, 10) for step in range(1, 15)]
    expected = {5, 10} if batches == 1 else {4, 5, 9, 10}
    assert seen == [step in expected for step in range(1, 15)]


class Copies(TorchDispatchMode):
    """Counts the tensors that are copied."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten.clone.default
        return function(*args, **(kwargs or {}))


def test_gradients_are_copied_only_for_the_step_that_needs_them():
    sparsifier, train = prepared(exploration=Exploration(interval=3), backend="masked")
    copied = []
    for _ in range(6):
        train(step=False)
        sparsifier.step()
        # The gradients of the step to come, as they are before the optimizer's step.
        with Copies() as copies:
            sparsifier.mask_gradients()
        copied.append(copies.count)
    assert copied == [0, 2, 0, 0, 2, 0]


@pytest.mark.parametrize("options", [{"exploration": None}, {"grow": "random"}])
def test_no_dense_gradient_is_kept_where_none_is_needed(options):
    sparsifier, train = prepared(**{"exploration": Exploration(interval=1)} | options)
    for _ in range(4):
        train()
        assert recorded(sparsifier) == 0
    assert not sparsifier.due or "grow" in options


def test_random_growth_explores_without_any_gradient():
    sparsifier, _ = prepared(grow="random", exploration=None)
    before = sparsifier.digest
    sparsifier.explore(0.5)
    assert sparsifier.digest != before


@pytest.mark.parametrize("grow", ["gradient", "momentum", {"gradient": 1, "random": 1}])
def test_exploring_before_any_gradient_is_refused(grow):
    sparsifier, _ = prepared(grow=grow, exploration=None)
    with pytest.raises(FreeTicketsError, match="no dense gradient to grow by: call keep_gradients"):
        sparsifier.explore(0.5)


def test_an_escape_uses_the_gradient_that_was_kept():
    sparsifier, train = prepared(exploration=Exploration(interval=1000))
    train()
    sparsifier.keep_gradients()
    train()
    before = sparsifier.topology
    sparsifier.explore(0.8)
    for name, mask in sparsifier.topology.items():
        assert mask.sum() == before[name].sum()
        assert not torch.equal(mask, before[name])
    train()
    with pytest.raises(FreeTicketsError, match="no dense gradient"):
        sparsifier.explore(0.8)  # that gradient is of a step ago


def test_an_escape_may_follow_an_exploration_at_the_same_step():
    sparsifier, train = prepared(exploration=Exploration(interval=2))
    train()
    assert train()
    before = sparsifier.digest
    sparsifier.explore(0.8)
    assert sparsifier.digest != before


def test_gradients_zeroed_before_the_step_are_noticed():
    network = nn.Linear(6, 6)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    sparsifier = Sparsifier(network, optimizer, 0.5, exploration=Exploration(interval=1))
    network(torch.randn(2, 6)).sum().backward()
    optimizer.zero_grad()
    optimizer.step()
    with pytest.raises(FreeTicketsError, match="no dense gradient"):
        sparsifier.step()
