"""Which way a layer takes: a function of the layer and the machine's kind, never of the clock."""

import json
import math

import pytest
import torch
from torch import nn

from freetickets.errors import DamagedFileError, FreeTicketsError
from freetickets.kernels import choice, choices, ops
from freetickets.kernels.choice import (
    COSTS,
    Costs,
    Work,
    basis,
    convolution_ways,
    predicting_way,
    shipped_costs,
)
from freetickets.kernels.choices import Choices, difference, joined, words
from freetickets.kernels.inference import compile_network
from freetickets.kernels.layout import GroupedLayout
from freetickets.kernels.library import Geometry, instruction_set, lanes
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
    assert basis() == (shipped_costs(instructions), "shipped", True)
    for density, way in ((1.0, WINOGRAD), (0.6, WINOGRAD), (0.1, 0), (0.02, 0)):
        assert ways(work(channels, size, density)) == way


def test_zen_4_computes_long_vectors_in_halves_and_has_costs_of_its_own(monkeypatch):
    for family, halves in (("25", True), ("26", False), ("6", False), (None, False)):
        monkeypatch.setattr(choice, "_processor", {"cpu family": family}.get)
        assert shipped_costs("avx512") == COSTS["avx512 in halves" if halves else "avx512"]
        assert shipped_costs("avx2") == COSTS["avx2"]
    monkeypatch.undo()
    assert choice.processor() != choice._processor("cpu family")


def test_winograds_way_is_for_many_samples_and_linear_layers_skip_zeros_unless_few():
    strided = work(640, 8, 1.0, stride=(2, 2))
    assert ways(strided) == ops.ALL
    assert ways(strided._replace(nonzeros=strided.nonzeros // 10)) == 0
    assert predicting_way(work(160, 32, 1.0, 2), rows=True)[0] == ops.FORWARD
    assert predicting_way(work(160, 32, 1.0, 16), rows=False)[0] == ops.FORWARD << ops.WINOGRAD
    assert predicting_way(work(160, 32, 0.1, 2), rows=True)[0] == 0
    costs = basis().costs
    assert choice.linear_ways(512, 512, 512 * 512 // 5, 128, costs) == 0
    assert choice.linear_ways(512, 512, 512 * 512, 128, costs) == ops.ALL


# ---- what the environment says


def test_without_winograds_way_no_network_takes_it(monkeypatch):
    """Neither dense training, nor prediction: the kernel is not called."""
    network = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.Flatten(), nn.Linear(64 * 256, 2))
    x, called = torch.randn(16, 64, 16, 16), []
    monkeypatch.setattr(ops.winograd, "convolve", lambda *_, **__: called.append(1) or 1 / 0)
    monkeypatch.setenv("FREETICKETS_WINOGRAD", "0")
    for density in (1.0, 0.6, 0.1):
        assert ways(work(160, 32, density)) < 1 << ops.WINOGRAD
        assert predicting_way(work(160, 32, density), rows=False)[0] in (0, ops.FORWARD)
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
    ("name", "value", "words"),
    [("WINOGRAD", "no", "0 or 1, not 'no'"), ("COSTS", "mine", "shipped or measured, not 'mine'")],
)
def test_what_the_environment_may_not_say(refused, monkeypatch, name, value, words):
    monkeypatch.setenv(f"FREETICKETS_{name}", value)
    refused(f"must be {words}", basis)


def test_measured_costs_are_used_if_they_are_asked_for(refused, cache, monkeypatch):
    refused(r"nothing was measured.*freetickets bench choose", basis)
    cheap = COSTS[instruction_set()]._replace(weight=(1e-6, 1e-6), visit=(0, 0), visit_of=(0, 0))
    choice.keep_measured("another", cheap._replace(layout=3.0))
    choice.keep_measured(instruction_set(), cheap)
    assert basis() == (cheap, "measured", True)
    assert ways(work(160, 32, 1.0)) == 0
    assert choice._measured("another").layout == 3.0
    monkeypatch.delenv("FREETICKETS_COSTS")
    assert ways(work(160, 32, 1.0)) == WINOGRAD


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"gone": 1.0}, FreeTicketsError, "another version of freetickets: run freetickets bench"),
        *(({key: value}, DamagedFileError, f"{key}.*freetickets bench choose")
          for key, value in (("layout", "slow"), ("weight", [1.0]), ("dense", 3),
                             ("visit", [1.0, None]))),
        (None, DamagedFileError, "must be a map"),
    ],
)  # fmt: skip
def test_measured_costs_that_are_old_or_of_another_type_are_refused(cache, change, error, words):
    key, plain = f"{choice.processor()}, {instruction_set()}", COSTS[instruction_set()].plain()
    write_json(cache, {key: [1, 2] if change is None else {**plain, **change}})
    with pytest.raises(error, match=words):
        basis()


def test_measured_costs_that_were_altered_are_refused(cache):
    choice.keep_measured(instruction_set(), COSTS[instruction_set()])
    cache.write_text(cache.read_text().replace("0.0", "0.1", 1))
    with pytest.raises(DamagedFileError, match="checksum"):
        basis()


def test_costs_are_plain_numbers_words_say_each_direction_and_back():
    for costs in COSTS.values():
        assert Costs.of(json.loads(json.dumps(costs.plain()))) == costs
        assert all(math.isfinite(n) for v in costs for n in (v if isinstance(v, tuple) else [v]))
    assert len({words(ways) for ways in range(64)}) == 27
    for ways in range(64):
        assert words(choices._ways(words(ways))) == words(ways)


# ---- what a network's layers have chosen: kept, told, and the same on another machine

CONV = Geometry((64, 64, 3, 3), padding=(1, 1))
SIZE = 64 * 64 * 9
LINEAR = Geometry((512, 512, 1, 1))


def groups(samples, size=16):
    return torch.zeros(-(-samples // lanes()), 64, size, size, lanes())


def make(found):
    """Chooses for a dense, a sparse and a linear layer."""
    return (
        found.conv2d("first", CONV, SIZE, groups(40)),
        found.conv2d("second", CONV, SIZE // 10, groups(40)),
        found.linear("last", LINEAR, 512 * 512, torch.zeros(40, 512)),
    )


def test_a_choice_does_not_depend_on_threads_nor_on_time(threads):
    found = set()
    for count in (1, 2):
        threads(count)
        made = Choices()
        found |= {make(made), make(made)}
    assert len(found) == 1


def test_what_was_chosen_is_told_in_words(instructions):
    made = Choices()
    make(made)
    told = made.state_dict()
    assert (told["kernels"], told["winograd"], told["costs"]) == ([instructions], True, "shipped")
    assert told["nanoseconds"] == shipped_costs(instructions).plain()
    *convolutions, last = told["ways"].items()
    maps = "of 36864 weights, maps of 16x16, 33 to 48 samples"
    assert convolutions == [
        (f"first: 36864 {maps}", "Winograd / Winograd / Winograd"),
        (f"second: 3686 {maps}", "sparse / sparse / sparse"),
    ]
    assert last[0] == "last: 262144 of 262144 weights, 33 to 48 samples"
    assert json.loads(json.dumps(told)) == told


def test_a_run_keeps_its_choices_and_what_they_rest_on(monkeypatch):
    monkeypatch.setenv("FREETICKETS_WINOGRAD", "0")
    before = Choices()
    before.conv2d("first", CONV, SIZE, groups(40))
    monkeypatch.delenv("FREETICKETS_WINOGRAD")
    monkeypatch.setattr(choice, "shipped_costs", lambda _: COSTS["baseline"])
    again, anew = Choices(), Choices()
    again.load_state_dict(before.state_dict())
    assert again.state_dict() == before.state_dict()
    assert again.conv2d("other", CONV, SIZE, groups(40)) == before.conv2d(
        "first", CONV, SIZE, groups(40)
    )
    assert anew.conv2d("first", CONV, SIZE, groups(40)) == 56
    monkeypatch.setattr(choices, "convolution_ways", lambda *_: 1)
    kept = list(before.state_dict()["ways"].values())
    again.conv2d("first", CONV, SIZE, groups(33))
    assert list(again.state_dict()["ways"].values()) == kept * 2


def test_a_run_keeps_its_choices_on_another_machine(other_kernels):
    """In groups of another size the same batch has the same choice."""
    other_kernels("baseline")
    before = Choices()
    made = make(before)
    other_kernels("avx2")
    after = Choices()
    after.load_state_dict(before.state_dict())
    assert make(after) == made
    state = after.state_dict()
    assert state["ways"] == before.state_dict()["ways"]
    assert state["kernels"] == ["baseline", "avx2"]
    warning = difference(before.state_dict(), after)
    assert warning is not None
    assert "has used the baseline kernels so far and goes on with the avx2 ones" in warning
    assert "goes on without them" in str(difference(before.state_dict(), None))
    assert difference(state, after) is difference({}, after) is difference({}, None) is None


def test_choices_of_other_costs_or_of_nothing_are_kept():
    before = Choices()
    made = make(before)
    state = {**before.state_dict(), "nanoseconds": {"weight": 1.0}, "winograd": False}
    after = Choices()
    after.load_state_dict(state)
    assert make(after) == made
    assert after.conv2d("new", CONV, SIZE, groups(40)) < 8
    made = Choices()
    made.load_state_dict({})
    assert made.state_dict() == Choices().state_dict()
    assert made.conv2d("first", CONV, SIZE // 10, groups(0)) == 0


def test_parts_of_a_run_say_together_what_each_says():
    one, two = Choices(), Choices()
    one.conv2d("first", CONV, SIZE, groups(40))
    make(two)
    assert joined([{}, one.state_dict(), two.state_dict()]) == two.state_dict()
    other = {**one.state_dict(), "kernels": ["another"]}
    assert joined([two.state_dict(), other])["kernels"] == [instruction_set(), "another"]
    assert joined([{}, {}]) == {}
