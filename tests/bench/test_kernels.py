import pytest
import torch

from freetickets.bench import NAMES, kernels, timing
from freetickets.bench.kernels import Conv, LinearNetwork, conv_sides
from freetickets.bench.timing import Ratio, Timing
from freetickets.kernels import ops
from freetickets.kernels.groups import from_groups
from freetickets.kernels.library import available

pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built")


@pytest.fixture
def fake_times(monkeypatch):
    """A clock for which sparse takes its density, channels_last a half and contiguous 1."""
    times = {"PyTorch contiguous": 1.0, "PyTorch channels_last": 0.5, "PyTorch": 0.5}

    def interleave(sides, repeats, **_):
        found = {}
        for name in sides:
            kind, _, density = name.partition(" ")
            seconds = times.get(name) or (float(density or 0.1) if kind == "sparse" else 2.0)
            found[name] = Timing(seconds, seconds)
        return found

    monkeypatch.setattr(kernels, "interleave", interleave)


@pytest.mark.parametrize("name", NAMES["kernels"])
def test_every_measurement_runs(tiny, name):
    results = list(getattr(kernels, name)(tiny))
    rows = [result for result in results if isinstance(result, Ratio)]
    assert rows
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.value > 0 and len(row.seconds) == 2 and row.repeats == 1 for row in rows)


WIDE = {
    "forward": {0.2: (3.5, 4.5), 0.1: (6, 8), 0.05: (9, 14)},
    "training": {0.2: (4, 5), 0.1: (7, 9), 0.05: (11, 16)},
}
SMALL = {"training": {0.2: (3, 4), 0.1: (5, 7)}}


@pytest.mark.parametrize(
    ("name", "per_layer", "bars"), [("wide", 3 * 3 * 3, WIDE), ("small", 3 * 2, SMALL)]
)
def test_only_means_have_bars_against_the_better_layout(fake_times, tiny, name, per_layer, bars):
    rows = [row for row in getattr(kernels, name)(tiny) if isinstance(row, Ratio)]
    with_bars = iter([row for row in rows if row.bar is not None])
    for kind, limits in bars.items():
        for density, (must, should) in limits.items():
            row = next(with_bars)
            assert row.name == f"{kind}, {name} convolutions: geometric mean, density {density:g}"
            assert (row.bar, row.aim) == (1 / must, 1 / should)
            assert row.value == pytest.approx(density / 0.5)
            assert list(row.seconds) == ["sparse", "PyTorch channels_last"]
    assert next(with_bars, None) is None
    assert len([row for row in rows if row.bar is None]) == per_layer


@pytest.mark.parametrize(
    ("instructions", "speedups"),
    [
        ("avx512", [(2.4, 3), (2.4, 3), (1.8, 2.5)]),
        ("avx2", [(1.8, 2.5), (1.8, 2.5), (1.5, 2)]),
    ],
)
def test_dense_layers_have_a_bar_for_each_direction_and_linear_networks_for_each_density(
    fake_times, tiny, monkeypatch, instructions, speedups
):
    monkeypatch.setattr(timing, "instruction_set", lambda: instructions)
    rows = list(kernels.dense(tiny))
    assert len(rows) == 3 * 3 + 3
    assert all(row.bar is None and row.value == 2.0 for row in rows[:9])
    limits = [(row.bar, row.aim) for row in rows[9:]]
    assert limits == [(1 / must, 1 / should) for must, should in speedups]
    assert list(rows[-1].seconds) == ["ours", "PyTorch channels_last"]
    rows = [row for row in kernels.linear(tiny) if isinstance(row, Ratio) and row.bar]
    assert [(row.bar, row.aim) for row in rows] == [(1 / 2.5, 1 / 4), (1 / 8, 1 / 15)]
    assert all(row.value == pytest.approx(0.2) for row in rows)


@pytest.mark.parametrize(
    ("conv", "ways"),
    [
        (Conv(5, 7, 6), 0),
        (Conv(5, 7, 6), kernels.WINOGRAD),
        (Conv(3, 4, 8, kernel=7, stride=2), 0),
        (Conv(6, 6, 5, 1), ops.ALL),
    ],
)
def test_all_sides_of_a_convolution_compute_the_same(conv, ways):
    batch = 3
    for direction, sides in conv_sides(conv, batch, [1.0], ways).items():
        sparse, contiguous, last = (side() for side in sides.values())
        if direction == "weight gradient":
            sparse = sparse.view(conv.geometry.shape)
        else:
            sparse = from_groups(sparse, batch)
        torch.testing.assert_close(contiguous, last, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(sparse, contiguous, atol=1e-4, rtol=1e-4)


def test_all_sides_of_a_linear_network_compute_the_same():
    network = LinearNetwork([9, 17, 5], 6, density=1.0)
    for sparse, dense in zip(network.train(), network.train_dense(), strict=True):
        torch.testing.assert_close(sparse.view(dense.shape), dense, atol=1e-4, rtol=1e-4)
    network = LinearNetwork([9, 17, 5], 6, density=0.3)
    assert [len(values) for values, *_ in network._layers] == [46, 26]
    for side in network.csr_sides().values():
        torch.testing.assert_close(side().t(), network.predict(), atol=1e-4, rtol=1e-4)
