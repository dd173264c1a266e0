"""Sparse or dense, whichever is faster: measured once, remembered, and without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from freetickets.kernels import choice, ops
from freetickets.kernels.choice import Choices, dense_is_faster
from freetickets.kernels.layers import SparseLayer, make_sparse

ALL = ops.FORWARD | ops.INPUT_GRADIENT | ops.WEIGHT_GRADIENT


@pytest.fixture(autouse=True)
def _nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_measured", {})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """A clock that goes only where it is told to; returns a way that takes so long."""
    now = 0.0

    def way(seconds: float) -> Callable[[], None]:
        def run() -> None:
            nonlocal now
            now += seconds

        return run

    monkeypatch.setattr(choice.time, "perf_counter", lambda: now)
    return way


@pytest.fixture
def faster(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], list[str]]:
    """Decides what is faster; returns the list of what was asked."""

    def set_up(dense: bool) -> list[str]:
        asked: list[str] = []

        def answer(key: str, *_: Any) -> bool:
            asked.append(key)
            return dense

        monkeypatch.setattr(choice, "dense_is_faster", answer)
        return asked

    return set_up


def linear(choices: Choices, inputs: int = 6) -> SparseLayer:
    return make_sparse(nn.Linear(inputs, 4), torch.ones(4, inputs).bool(), choices)


def conv(choices: Choices) -> SparseLayer:
    return make_sparse(nn.Conv2d(3, 4, 3), torch.ones(4, 3, 3, 3).bool(), choices)


def test_the_dense_way_must_win_clearly(clock: Callable[[float], Any]) -> None:
    assert dense_is_faster(None, clock(1.0), clock(0.9))
    assert not dense_is_faster(None, clock(1.0), clock(0.99))
    assert not dense_is_faster(None, clock(1.0), clock(2.0))


def test_what_looks_alike_is_measured_once(clock: Callable[[float], Any]) -> None:
    assert dense_is_faster("a", clock(1.0), clock(0.5))
    assert dense_is_faster("a", clock(1.0), clock(5.0))
    assert not dense_is_faster("b", clock(1.0), clock(5.0))


def test_without_measuring_everything_is_sparse(faster: Callable[[bool], list[str]]) -> None:
    asked = faster(True)
    choices = Choices(measure=False)
    assert choices.linear(linear(choices), torch.ones(8, 6)) == 0
    assert choices.conv2d(conv(choices), torch.ones(1, 3, 5, 5, 8)) == 0
    assert asked == []
    assert choices.state_dict() == {}


@pytest.mark.parametrize("dense", [True, False])
def test_each_direction_is_measured_and_the_answer_kept(
    faster: Callable[[bool], list[str]], dense: bool
) -> None:
    asked = faster(dense)
    choices = Choices(measure=True)
    for _ in range(2):
        assert choices.linear(linear(choices), torch.ones(8, 6)) == dense * ALL
        assert choices.conv2d(conv(choices), torch.ones(1, 3, 5, 5, 8)) == dense * ALL
    assert len(asked) == len(set(asked)) == 6
    assert len(choices.state_dict()) == 2


def test_other_layers_batches_and_threads_are_measured_by_themselves(
    faster: Callable[[bool], list[str]], threads: Callable[[int], None]
) -> None:
    asked = faster(True)
    choices = Choices(measure=True)
    layer = linear(choices)
    choices.linear(layer, torch.ones(8, 6))
    choices.linear(layer, torch.ones(9, 6))
    choices.linear(linear(choices, 7), torch.ones(8, 7))
    threads(2)
    choices.linear(layer, torch.ones(8, 6))
    assert len(set(asked)) == 12


def test_a_prediction_measures_the_forward_pass_only(
    faster: Callable[[bool], list[str]],
) -> None:
    asked = faster(True)
    choices = Choices(measure=True)
    with torch.no_grad():
        assert choices.linear(linear(choices), torch.ones(8, 6)) == ops.FORWARD
    assert len(asked) == 1
    assert choices.linear(linear(choices), torch.ones(8, 6)) == ALL


def test_choices_that_were_saved_are_not_made_again(
    faster: Callable[[bool], list[str]],
) -> None:
    faster(True)
    choices = Choices(measure=True)
    layer, x = linear(choices), torch.ones(8, 6)
    choices.linear(layer, x)
    state = choices.state_dict()
    asked = faster(False)
    again = Choices(measure=True)
    assert again.linear(layer, torch.ones(16, 6)) == 0
    again.load_state_dict(state)
    assert again.linear(layer, x) == ALL
    assert len(asked) == 3
    state.clear()
    assert again.linear(layer, x) == ALL


def test_measuring_leaves_the_global_generator_and_gradients_alone() -> None:
    choices = Choices(measure=True)
    layers = linear(choices), conv(choices)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    choices.linear(layers[0], torch.ones(8, 6))
    choices.conv2d(layers[1], torch.ones(1, 3, 5, 5, 8))
    assert torch.equal(torch.rand(2), expected)
    assert all(layer.values.grad is None for layer in layers)
    assert torch.is_grad_enabled()


def test_a_layer_computes_the_same_whatever_was_chosen(
    faster: Callable[[bool], list[str]],
) -> None:
    torch.manual_seed(0)
    found = []
    source = nn.Conv2d(3, 4, 3)
    x = torch.randn(5, 3, 6, 6)
    for dense in (True, False):
        faster(dense)
        layer = make_sparse(source, torch.ones(4, 3, 3, 3).bool(), Choices(measure=True))
        y = layer(x)
        y.square().sum().backward()
        found.append((y.detach(), layer.values.grad))
    torch.testing.assert_close(found[0], found[1])
