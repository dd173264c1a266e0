"""Networks that nobody here had in mind: compiled and sparsely trained, they compute the same."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from freetickets.kernels.layers import SparseConv2d

from .zoo.checks import (
    BATCHES,
    TRAINED_BATCHES,
    Compiler,
    compare_compiled,
    compare_trained,
    mixed,
    sparse,
)
from .zoo.graphs import programs
from .zoo.networks import ZOO

# PyTorch says this of its own accord, once.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")

# The full run has a thousand.
GRAPHS = int(os.environ.get("FREETICKETS_GRAPHS", "25"))

EVERY = pytest.mark.parametrize("entry", ZOO.values(), ids=ZOO)

# Why these are answered by the plain network; the others must be compiled.
FALL_BACK = {
    "inputs and outputs: however_many": "not given by its place",
    "inputs and outputs: pyramid": "answers something else",
    "inputs and outputs: data_class": "can't be compared",
    "tricks: hooked": "there is a hook",
}


def test_the_zoo_is_complete():
    assert len(ZOO) == 103
    assert set(FALL_BACK) < set(ZOO)


@EVERY
def test_compiled_networks_predict_the_same(entry):
    faults, fallbacks = compare_compiled(entry.build(), entry.draw)
    none_wrong(faults)
    assert len(fallbacks) == (entry.name in FALL_BACK)
    assert FALL_BACK.get(entry.name, "") in "".join(fallbacks)
    faults, _ = compare_compiled(entry.build(), entry.draw, batches=(9,), way=mixed, threads=False)
    none_wrong(faults)


@EVERY
def test_sparse_networks_train_the_same(entry):
    comparable = entry.trains and not entry.random
    batches = tuple(n for n in TRAINED_BATCHES if comparable and n >= entry.least)
    faults = compare_trained(entry.build, entry.draw, batches=batches)
    assert faults is not None, "nothing in this network can be sparse"
    none_wrong(faults)


def none_wrong(faults):
    assert not faults, "\n" + "\n".join(faults)


# ---- random networks


@settings(
    max_examples=GRAPHS, deadline=None, database=None, derandomize=GRAPHS <= 25,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(programs(), st.sampled_from(BATCHES), st.booleans(), st.integers(0, 9))
def test_random_networks_compute_the_same(program, samples, is_mixed, luck):
    faults, reasons = compare_compiled(
        program.build(), program.draw, batches=(samples, 9), way=mixed if is_mixed else sparse,
        threads=luck == 0,
    )  # fmt: skip
    comparable = program.trains and not program.random
    # See them with --hypothesis-show-statistics.
    event("is trained too" if comparable else "only predicts")
    event("falls back" if reasons else "is compiled")
    faults += (
        compare_trained(
            program.build, program.draw, batches=(2, 9) if comparable else (), predicted=(samples,)
        )
        or []
    )
    none_wrong(faults)


# ---- the checks themselves


class Altered(nn.Module):
    """Something other than the network, in a way that a check must see."""

    def __init__(self, network, change):
        super().__init__()
        self.network, self.change = network, change

    def forward(self, x):
        return self.change(x, self.network(x))


def _last_row_lost(x, y):
    y[16:] = 0  # as if a second group of samples had been forgotten
    return y


CHANGES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a little too large": lambda x, y: y * 1.0003,
    "NaN": lambda x, y: y * torch.nan,
    "the last row": _last_row_lost,
    "two samples swapped": lambda x, y: y.flip(0),
    "another shape": lambda x, y: y[:, None],
    "another type": lambda x, y: y.double(),
    "another container": lambda x, y: [y],
    "changed inputs": lambda x, y: (x.add_(1), y)[1],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_check_of_compiled_networks_sees(change):
    entry = ZOO["residual: pre_activation"]
    altered: Compiler = lambda network, topology: Altered(network, change)  # noqa: E731
    faults, _ = compare_compiled(entry.build(), entry.draw, compiler=altered, batches=(17,))
    assert faults


def _wrong_gradient(y):
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 1.001)
    return y


@pytest.mark.parametrize("change", [lambda y: y + 1e-3, _wrong_gradient], ids=["map", "gradient"])
def test_the_check_of_training_sees(monkeypatch, change):
    entry, forward = ZOO["vgg: all_convolutional"], SparseConv2d.forward
    monkeypatch.setattr(SparseConv2d, "forward", lambda self, x: change(forward(self, x)))
    assert compare_trained(entry.build, entry.draw, batches=(2,))
