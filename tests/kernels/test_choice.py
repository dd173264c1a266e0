"""Which way a layer takes: a function of the layer and the machine's kind, never of the clock."""

import json
import math

import pytest
import torch
from torch import nn

from freetickets.errors import DamagedFileError, FreeTicketsError
from freetickets.kernels import choice, measured, ops
from freetickets.kernels.choice import COSTS, Costs, Work, basis, convolution_ways, predicting_way
from freetickets.kernels.inference import compile_network
from freetickets.kernels.layout import GroupedLayout
from freetickets.kernels.library import Geometry, instruction_set
from freetickets.storage import write_json

WINOGRAD = ops.ALL << ops.WINOGRAD


def work(channels, size, density, samples=64, **settings):
    geometry = Geometry((channels, channels, 3, 3), padding=(1, 1), **settings)
    return Work(geometry, int(density * channels * channels * 9), samples, size, size)


def ways(work):
    return convolution_ways(work, basis().effective)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of one's own, and measured costs asked for."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("FREETICKETS_COSTS", "measured")
    choice._basis.cache_clear()
    return tmp_path / "freetickets" / "costs.json"


@pytest.mark.parametrize(("channels", "size"), [(160, 32), (320, 16), (640, 8), (64, 16)])
def test_nearly_dense_layers_take_winograds_way_and_others_skip_zeros(instructions, channels, size):
    assert ways(work(channels, size, 1.0)) == WINOGRAD
    assert ways(work(channels, size, 0.6)) == WINOGRAD
    assert ways(work(channels, size, 0.1)) == 0
    assert ways(work(channels, size, 0.02)) == 0


def test_where_winograds_way_does_not_exist_dense_layers_may_be_pytorchs():
    strided = work(640, 8, 1.0, stride=(2, 2))
    assert ways(strided) == ops.ALL
    assert ways(strided._replace(nonzeros=strided.nonzeros // 10)) == 0


def test_few_samples_have_no_winograds_way():
    assert predicting_way(work(160, 32, 1.0, 2), rows=True)[0] == ops.FORWARD
    assert predicting_way(work(160, 32, 1.0, 16), rows=False)[0] == ops.FORWARD << ops.WINOGRAD
    assert predicting_way(work(160, 32, 0.1, 2), rows=True)[0] == 0


def test_linear_layers_skip_zeros_unless_there_are_few():
    costs = basis().costs
    assert choice.linear_ways(512, 512, 512 * 512 // 5, 128, costs) == 0
    assert choice.linear_ways(512, 512, 512 * 512, 128, costs) == ops.ALL


def test_every_instruction_set_has_its_costs(instructions):
    assert basis() == (COSTS[instructions], "shipped", True)


# ---- what the environment says


def test_winograds_way_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("FREETICKETS_WINOGRAD", "0")
    for density in (1.0, 0.6, 0.1):
        assert ways(work(160, 32, density)) < 1 << ops.WINOGRAD
        assert predicting_way(work(160, 32, density), rows=False)[0] in (0, ops.FORWARD)


def test_without_winograds_way_no_network_takes_it(monkeypatch):
    """Neither dense training, nor prediction: the kernel is not called."""
    network = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Flatten(), nn.Linear(64 * 256, 2))
    x, called = torch.randn(16, 64, 16, 16), []
    monkeypatch.setattr(ops.winograd, "convolve", lambda *_, **__: called.append(1) or 1 / 0)
    monkeypatch.setenv("FREETICKETS_WINOGRAD", "0")
    layout = GroupedLayout(network)
    network(x).sum().backward()
    layout.remove()
    compile_network(network.eval(), {})(x)
    assert not called
    monkeypatch.delenv("FREETICKETS_WINOGRAD")
    GroupedLayout(network)
    with pytest.raises(ZeroDivisionError):
        network(x)
    assert called


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("FREETICKETS_WINOGRAD", "no", "must be 0 or 1, not 'no'"),
        ("FREETICKETS_COSTS", "mine", "must be shipped or measured, not 'mine'"),
    ],
)
def test_what_the_environment_may_not_say(monkeypatch, name, value, message):
    monkeypatch.setenv(name, value)
    with pytest.raises(FreeTicketsError, match=message):
        basis()


def test_measured_costs_are_used_if_they_are_asked_for(cache, monkeypatch):
    with pytest.raises(FreeTicketsError, match=r"nothing was measured.*freetickets bench choose"):
        basis()
    cheap = COSTS[instruction_set()]._replace(weight=(1e-6, 1e-6), visit=(0, 0), visit_of=(0, 0))
    measured.write("another", cheap._replace(layout=3.0).plain())
    measured.write(instruction_set(), cheap.plain())
    assert basis() == (cheap, "measured", True)
    assert ways(work(160, 32, 1.0)) == 0
    assert measured.read("another")["layout"] == 3.0
    monkeypatch.delenv("FREETICKETS_COSTS")
    assert ways(work(160, 32, 1.0)) == WINOGRAD


def test_measured_costs_that_were_altered_or_are_old_are_refused(cache):
    plain = COSTS[instruction_set()].plain()
    measured.write(instruction_set(), {**plain, "gone": 1.0})
    with pytest.raises(FreeTicketsError, match="another version"):
        basis()
    measured.write(instruction_set(), plain)
    cache.write_text(cache.read_text().replace("0.0", "0.1", 1))
    with pytest.raises(DamagedFileError, match="checksum"):
        basis()


@pytest.mark.parametrize(
    "change", [{"layout": "slow"}, {"weight": [1.0]}, {"dense": 3}, {"visit": [1.0, None]}]
)
def test_measured_costs_of_another_type_are_damage(cache, change):
    measured.write(instruction_set(), {**COSTS[instruction_set()].plain(), **change})
    with pytest.raises(DamagedFileError, match=f"{next(iter(change))}.*freetickets bench choose"):
        basis()
    write_json(cache, {measured._key(instruction_set()): [1, 2]})
    with pytest.raises(DamagedFileError, match="must be a map"):
        basis()


def test_costs_are_plain_numbers_and_back():
    for costs in COSTS.values():
        assert Costs.of(json.loads(json.dumps(costs.plain()))) == costs
        assert all(math.isfinite(n) for v in costs for n in (v if isinstance(v, tuple) else [v]))
