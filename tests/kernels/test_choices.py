"""What a network's layers have chosen: kept, told, and the same on another machine."""

import json

import torch

from freetickets.kernels import choice, choices, library
from freetickets.kernels.choices import Choices, difference, joined, words
from freetickets.kernels.library import Geometry, lanes

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
    assert told["nanoseconds"] == choice.COSTS[instructions].plain()
    first, second, last = told["ways"].items()
    assert first == (
        "first: 36864 of 36864 weights, maps of 16x16, 33 to 48 samples",
        "Winograd / Winograd / Winograd",
    )
    assert second == (
        "second: 3686 of 36864 weights, maps of 16x16, 33 to 48 samples",
        "sparse / sparse / sparse",
    )
    assert last[0] == "last: 262144 of 262144 weights, 33 to 48 samples"
    assert json.loads(json.dumps(told)) == told


def test_words_say_each_direction():
    assert len({words(ways) for ways in range(64)}) == 27
    for ways in range(64):
        assert words(choices._ways(words(ways))) == words(ways)


def test_a_run_keeps_its_choices_and_what_they_rest_on(monkeypatch):
    monkeypatch.setenv("FREETICKETS_WINOGRAD", "0")
    before = Choices()
    before.conv2d("first", CONV, SIZE, groups(40))
    monkeypatch.delenv("FREETICKETS_WINOGRAD")
    monkeypatch.setitem(choice.COSTS, library.instruction_set(), choice.COSTS["baseline"])
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


def test_choices_of_a_version_with_other_costs_are_kept():
    before = Choices()
    made = make(before)
    state = {**before.state_dict(), "nanoseconds": {"weight": 1.0}, "winograd": False}
    after = Choices()
    after.load_state_dict(state)
    assert make(after) == made
    assert after.conv2d("new", CONV, SIZE, groups(40)) < 8


def test_nothing_chosen_is_no_choice():
    made = Choices()
    made.load_state_dict({})
    assert made.state_dict() == Choices().state_dict()


def test_parts_of_a_run_say_together_what_each_says(tmp_path):
    one, two = Choices(), Choices()
    one.conv2d("first", CONV, SIZE, groups(40))
    make(two)
    assert joined([{}, one.state_dict(), two.state_dict()]) == two.state_dict()
    other = {**one.state_dict(), "kernels": ["another"]}
    assert joined([two.state_dict(), other])["kernels"] == [library.instruction_set(), "another"]
    assert joined([{}, {}]) == {}


def test_an_empty_batch_can_be_chosen_for():
    assert Choices().conv2d("first", CONV, SIZE // 10, groups(0)) == 0
