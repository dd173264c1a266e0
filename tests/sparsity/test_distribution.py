import functools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freetickets.models import create_model
from freetickets.sparsity import DISTRIBUTIONS, allocate, er, erk, select_weights, uniform
from freetickets.sparsity.distribution import matches

from .training import poured, properties


def size(shapes):
    return sum(map(math.prod, shapes.values()))


def group_of(name):
    block, _, rest = name.partition(".")
    return f"{block}.{rest}" if rest in ("0.conv1", "0.shortcut") or not rest else f"{block}.other"


# The table of densities that the original solver gives.
PARTS = ("0.conv1", "0.shortcut", "other")
GROUPS = ["conv1", *(f"block{block}.{part}" for block in (1, 2, 3) for part in PARTS), "fc"]
WIDE_RESNET = {
    (10, 0.8): [1, 1, 1, 0.574221, 0.428024, 1, 0.284469, 0.212691, 1, 0.141574, 1],
    (100, 0.8): [1, 1, 1, 0.570443, 0.425208, 1, 0.282597, 0.211292, 1, 0.140642, 1],
    (10, 0.9): [1, 1, 1, 0.276656, 0.206219, 1, 0.137055, 0.102473, 0.918439, 0.068209, 1],
    (100, 0.9): [1, 1, 1, 0.272630, 0.203218, 1, 0.135061, 0.100982, 0.905075, 0.067217, 1],
}


@pytest.mark.parametrize(("classes", "sparsity"), WIDE_RESNET)
def test_erk_of_wrn_28_10_has_the_densities_of_the_original_code(classes, sparsity):
    with torch.device("meta"):
        network = create_model("wrn-28-10", (3, 32, 32), classes)
    weights = select_weights(network).items()
    shapes = {name.removesuffix(".weight"): tuple(weight.shape) for name, weight in weights}
    densities = erk(shapes, sparsity)
    expected = dict(zip(GROUPS, WIDE_RESNET[classes, sparsity], strict=True))
    groups = {name: group_of(name).rstrip(".") for name in densities}
    assert {groups[name]: round(density, 6) for name, density in densities.items()} == expected
    assert all((density == 1) == (expected[groups[n]] == 1) for n, density in densities.items())
    total = {10: 36_461_232, 100: 36_518_832}[classes]
    assert size(shapes) == total
    assert sum(allocate(shapes, sparsity).values()) == round((1 - sparsity) * total)


def test_er_ignores_the_kernel_and_power_moves_erk_between_uniform_and_beyond():
    shapes = {"small": (64, 64, 1, 1), "kernel": (64, 64, 3, 3), "large": (256, 256, 3, 3)}
    by_er, by_erk = er(shapes, 0.9), erk(shapes, 0.9)
    assert by_er["small"] == pytest.approx(by_er["kernel"])
    assert by_er["kernel"] == pytest.approx(4 * by_er["large"])
    assert by_erk["small"] == 1.0
    assert by_erk["kernel"] / by_erk["large"] == pytest.approx((134 / 9) / (518 / 9 / 16))
    linear = {"a": (300, 784), "b": (100, 300), "c": (10, 100)}
    assert er(linear, 0.9) == erk(linear, 0.9)
    for densities in (by_er, by_erk):
        kept = sum(densities[name] * math.prod(shape) for name, shape in shapes.items())
        assert kept == pytest.approx(0.1 * size(shapes))
    shapes = {"a": (100, 50), "b": (400, 300), "c": (300, 300)}
    flat = erk(shapes, 0.9, power=0.0)
    assert flat == pytest.approx(uniform(shapes, 0.9))
    half, full = erk(shapes, 0.95, power=0.5), erk(shapes, 0.95)
    ratio = (150 / 5000) / (700 / 120_000)
    assert full["a"] / full["b"] == pytest.approx(ratio)
    assert half["a"] / half["b"] == pytest.approx(math.sqrt(ratio))
    counts = allocate(shapes, 0.95, functools.partial(erk, power=0.5))
    assert sum(counts.values()) == round(0.05 * size(shapes))


def test_each_layer_gets_its_count():
    for sparsity, distribution, expected in (
        (0.9, "uniform", [10, 100, 18]),
        (0.9, "uniform-dense-first", [100, 100, 18]),  # the first is outside the budget
        (0.5, lambda *_: {"a": 0.25, "b": 0.75, "c": 1}, [25, 750, 180]),  # any function
        *((0.0, name, [100, 1000, 180]) for name in DISTRIBUTIONS),
        ({"c": 0.5, "*": 0.9}, "erk", [10, 100, 90]),  # the first pattern that fits
        ({"c": 0.5}, "erk", [100, 1000, 90]),
    ):
        counts = allocate({"a": (10, 10), "b": (20, 50), "c": (4, 5, 3, 3)}, sparsity, distribution)
        assert counts == dict(zip("abc", expected, strict=True))


def test_patterns_fit_weights_or_modules_as_a_whole():
    fitting = {
        "block1.*": "block1.0.conv1.weight", "*.conv2": "block1.0.conv2.weight",
        "fc": "fc.weight", "fc.weight": "fc.weight", "weight": "weight",
    }  # fmt: skip
    assert all(matches(name, pattern) for pattern, name in fitting.items())
    for name, pattern in {"fc2.weight": "fc", "block10.0.weight": "block1", "FC.w": "fc"}.items():
        assert not matches(name, pattern)


@pytest.mark.parametrize("sparsity", [1.0, 1.5, -0.1, math.nan, math.inf])
def test_a_sparsity_outside_0_to_1_is_refused(refused, sparsity):
    for given_as in (sparsity, {"a": sparsity}):
        refused("at least 0 and below 1", allocate, {"a": (10, 10)}, given_as)


def test_what_cannot_be_is_refused_by_name(refused):
    for shapes, sparsity, distribution, message in (
        ({"a": (2, 2), "b": (99, 99)}, 0.9, "uniform", "leaves layer 'a' without a single weight"),
        ({"a.weight": (9, 9)}, {"a.wieght": 0.5}, "erk", r"'a\.wieght'.*did you mean 'a\.weight'"),
        ({"a": (9, 9)}, 0.5, "erkk", "unknown distribution 'erkk': did you mean 'erk'"),
        ({}, 0.5, "erk", "no layer to make sparse"),
        *(
            ({"a": (9, 9)}, 0.5, lambda *_, densities=densities: densities, "layer 'a' density")
            for densities in ({}, {"a": 1.2}, {"a": -0.5}, {"a": math.nan})
        ),
    ):
        refused(message, allocate, shapes, sparsity, distribution)


# ---- properties

channels, kernel = st.integers(1, 40), st.integers(1, 5)
shape = st.one_of(*(st.tuples(channels, channels, *[kernel] * n) for n in range(3)))
networks = st.lists(shape, min_size=1, max_size=8).map(
    lambda shapes: {f"layer{i}": s for i, s in enumerate(shapes)}
)
sparsities = st.floats(0.0, 0.99)


@properties(150)
@given(networks, sparsities)
def test_erk_agrees_with_a_brute_force_solver(shapes, sparsity):
    """Which has nothing in common with ours: a layer wishes for the sum of its sides."""
    sizes = [math.prod(s) for s in shapes.values()]
    counts = poured((1 - sparsity) * sum(sizes), list(map(sum, shapes.values())), sizes)
    expected = [count / size for count, size in zip(counts, sizes, strict=True)]
    assert list(erk(shapes, sparsity).values()) == pytest.approx(expected, rel=1e-9)


@properties(150)
@given(networks, sparsities, st.sampled_from(["erk", "er", "uniform"]))
def test_counts_are_exact_and_fit_their_layers(shapes, sparsity, distribution):
    densities = DISTRIBUTIONS[distribution](shapes, sparsity)
    if min(densities[name] * math.prod(s) for name, s in shapes.items()) < 1:
        return  # a layer may be left without a weight, which is refused
    counts = allocate(shapes, sparsity, distribution)
    assert list(counts) == list(shapes)
    assert abs(sum(counts.values()) - (1 - sparsity) * size(shapes)) <= 0.5 + 1e-6
    for name, count in counts.items():
        assert 1 <= count <= math.prod(shapes[name])
