import re

import pytest
import torch

from freetickets.bench import NAMES, profile
from freetickets.bench.step import Step
from freetickets.kernels.library import available, native

needs_kernels = pytest.mark.skipif(not available(), reason="the kernels are not built")


@pytest.mark.parametrize("name", NAMES["profile"])
def test_every_part_of_a_profile_is_told_in_lines(tiny, name):
    lines = list(getattr(profile, name)(tiny))
    assert lines
    assert all(isinstance(line, str) and "nan" not in line for line in lines)


@needs_kernels
def test_parts_and_operations_of_a_step_are_those_of_its_layers(skipping_zeros):
    before = native().ft_forward
    seconds, parts = profile._parts(Step("wrn-10-1", 2, 0.8), 3)
    assert {"layers", "norms", "layout", "optimizer", "loss"} <= parts.keys()
    assert min(parts.values()) >= 0
    assert sum(parts.values()) >= seconds
    assert native().ft_forward is before
    step = Step("mlp-24-16-16", 32, 0.8, shape=(1, 4, 4))
    with profile._watched() as calls:
        step()
    found = {(name, layer.geometry.shape): layer for name, layer in calls if layer is not None}
    active = int(step.sparsifier.topology["fc3.weight"].sum())
    assert found["ft_linear", (16, 16, 1, 1)].operations == 2 * 32 * active
    assert found["ft_linear_backward", (16, 16, 1, 1)].operations == 4 * 32 * active


def test_operators_are_counted_in_both_steps(tiny):
    (line,) = profile.operators(tiny)
    dense, masked, beyond = map(int, re.search(r"(\d+) dense, (\d+) masked, (\d+)", line).groups())
    assert 0 < beyond == masked - dense
    with profile._Counter() as counter:
        torch.ones(2).add(1)
    assert counter.count == 2
