"""Which way a layer takes: a function of the layer and the machine's kind, never of the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from freetickets.kernels import choice, ops
from freetickets.kernels.choice import COSTS, Choices, Work, convolution_ways, predicting_way
from freetickets.kernels.layers import SparseLayer, make_sparse
from freetickets.kernels.library import Geometry, lanes

WINOGRAD = ops.ALL << ops.WINOGRAD


def work(channels: int, size: int, density: float, samples: int = 64, **settings: Any) -> Work:
    geometry = Geometry((channels, channels, 3, 3), padding=(1, 1), **settings)
    return Work(geometry, int(density * channels * channels * 9), samples, size, size)


def conv(choices: Choices) -> SparseLayer:
    return make_sparse(nn.Conv2d(3, 4, 3), torch.ones(4, 3, 3, 3).bool(), choices)


def linear(choices: Choices) -> SparseLayer:
    return make_sparse(nn.Linear(6, 4), torch.ones(4, 6).bool(), choices)


@pytest.mark.parametrize(("channels", "size"), [(160, 32), (320, 16), (640, 8), (64, 16)])
def test_nearly_dense_layers_take_winograds_way_and_others_skip_zeros(
    instructions: str, channels: int, size: int
) -> None:
    assert convolution_ways(work(channels, size, 1.0)) == WINOGRAD
    assert convolution_ways(work(channels, size, 0.6)) == WINOGRAD
    assert convolution_ways(work(channels, size, 0.1)) == 0
    assert convolution_ways(work(channels, size, 0.02)) == 0


def test_where_winograds_way_does_not_exist_dense_layers_may_be_pytorchs() -> None:
    strided = work(640, 8, 1.0, stride=(2, 2))
    assert convolution_ways(strided) == ops.ALL
    assert convolution_ways(strided._replace(nonzeros=strided.nonzeros // 10)) == 0


def test_few_samples_have_no_winograds_way() -> None:
    assert predicting_way(work(160, 32, 1.0, 2), rows=True)[0] == ops.FORWARD
    assert predicting_way(work(160, 32, 1.0, 16), rows=False)[0] == ops.FORWARD << ops.WINOGRAD
    assert predicting_way(work(160, 32, 0.1, 2), rows=True)[0] == 0


def test_linear_layers_skip_zeros_unless_there_are_few() -> None:
    assert choice.linear_ways(512, 512, 512 * 512 // 5, 128) == 0
    assert choice.linear_ways(512, 512, 512 * 512, 128) == ops.ALL


def test_a_choice_does_not_depend_on_threads_nor_on_time(
    threads: Callable[[int], None],
) -> None:
    found = set()
    for count in (1, 2):
        threads(count)
        choices = Choices(choose=True)
        x = torch.randn(4, 3, 9, 9, lanes())
        found.add((choices.conv2d(conv(choices), x), choices.linear(linear(choices), x[0, :, 0])))
        found.add((choices.conv2d(conv(choices), x), choices.linear(linear(choices), x[0, :, 0])))
    assert len(found) == 1


def test_without_a_choice_everything_is_sparse() -> None:
    choices = Choices(choose=False)
    assert choices.linear(linear(choices), torch.ones(8, 6)) == 0
    assert choices.conv2d(conv(choices), torch.ones(1, 3, 5, 5, lanes())) == 0
    assert choices.state_dict() == {}


def test_a_run_keeps_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = Choices(choose=True)
    x = torch.ones(1, 3, 5, 5, lanes())
    before = choices.conv2d(conv(choices), x)
    again = Choices(choose=True)
    again.load_state_dict(choices.state_dict())
    monkeypatch.setattr(choice, "convolution_ways", lambda work: before + 1)
    assert again.conv2d(conv(again), x) == before
    assert Choices(choose=True).conv2d(conv(choices), x) == before + 1


def test_every_instruction_set_has_its_costs(instructions: str) -> None:
    assert instructions in COSTS
