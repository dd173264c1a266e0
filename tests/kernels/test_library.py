"""The compiled library: loading it, and what it refuses to touch."""

import _ctypes
import resource
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import fx, nn
from torch.nn import functional as F

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library
from freetickets.kernels.library import Geometry


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"library_path": lambda: None}, r"not built .* or use backend='masked'"),
        ({"_INTERFACE": -1}, "belong to another version of freetickets: reinstall it"),
        # A library that can't even say which version it is.
        ({"library_path": lambda: Path(_ctypes.__file__)}, "belong to another version"),
    ],
)
def test_kernels_that_are_missing_or_of_another_version_are_one_line(monkeypatch, change, words):
    for name, value in change.items():
        monkeypatch.setattr(library, name, value)
    assert library.available() is (library.library_path() is not None)
    with pytest.raises(FreeTicketsError, match=words) as caught:
        library.native.__wrapped__()
    assert "\n" not in str(caught.value)


def test_the_best_instruction_set_gives_the_lanes_and_others_are_refused(refused, other_kernels):
    assert library.instruction_set() in ("baseline", "avx2", "avx512")
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        assert library.instruction_set() != "baseline"
    for name in ("baseline", library.instruction_set()):
        other_kernels(name)
        assert library.instruction_set() == name
        assert library.lanes() == library.native().ft_lanes()
        assert library.lanes() % 4 == 0
    refused("no kernels for 'mmx'", library.select_instruction_set, "mmx")
    assert library.instruction_set() == name


def test_the_size_of_a_layer_is_known_and_what_is_no_float32_never_arrives(refused):
    (stand_in, *_) = fx.symbolic_trace(nn.ReLU()).graph.nodes
    norm = library.NormStruct(1, 1, 8, 1, 1)
    for wrong, words in (
        *((torch.ones(8, dtype=dtype), rf"take float32 on the CPU, not {dtype} on cpu")
          for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.bool)),
        (torch.empty(8, device="meta"), "on meta: detach"),
        (fx.Proxy(stand_in), "take tensors, not a Proxy"),
    ):  # fmt: skip
        for tensors in ((wrong, torch.empty(8)), (torch.ones(8), wrong)):
            refused(words, library.call, "ft_to_groups", norm, *tensors, 1)
    for kernel, stride, fits in (((64, 64), (8, 8), True), ((65, 1), (1, 1), False),
                                 ((3, 3), (1, 9), False)):  # fmt: skip
        assert Geometry((1, 1, *kernel), stride).supported == fits


def test_new_memory_is_aligned_and_a_tensor_is_made_ready_without_a_copy():
    x = torch.arange(64.0).view(8, 8)
    assert library.ready(x) is x
    for odd in (x.t(), x.flatten()[1:], x[:, 3:5]):
        found = library.ready(odd)
        assert torch.equal(found, odd)
        assert found.is_contiguous()
        assert found.data_ptr() % 64 == 0
    for shape in [(0,), (1,), (3, 5), (1 << 20, 2), (1, 2, 3, 1 << 9, 1 << 9, 1)]:
        found = library.empty(*shape)
        assert (found.shape, found.dtype) == (shape, torch.float32)
        assert found.is_contiguous()
        assert found.data_ptr() % 64 == 0


def test_large_tensors_take_memory_that_is_free_and_give_it_back():
    library.release_memory()
    one, two = library.empty(1 << 20), library.empty(1 << 20)
    one.fill_(1)
    two.fill_(2)
    kept, address = one[:5], one.data_ptr()
    del one
    three = library.empty(1 << 20).fill_(3)
    assert three.data_ptr() != address, "a view of it lives"
    del kept
    # A part of it, and the rest.
    four, five = (library.empty(2, 1 << 18).fill_(number) for number in (4, 5))
    assert {four.data_ptr(), five.data_ptr()} == {address, address + (1 << 21)}
    for number, tensor in enumerate((two, three, four, five), start=2):
        assert tensor.eq(number).all()
    del four, five, tensor
    assert library.empty(1 << 20).data_ptr() == address, "the parts grew together again"
    library.release_memory()
    before = _resident()
    kept = library.empty(1 << 22).fill_(1)
    del kept
    assert _resident() - before > 15 << 20, "it waits for the next one"
    library.release_memory()
    assert _resident() - before < 4 << 20
    library.empty(1 << 22).fill_(1)
    other = library.empty(1 << 21, 3).fill_(1)
    assert _resident() - before < 28 << 20, "it went when something else was needed"
    assert other.eq(1).all()


@given(st.lists(st.integers(1 << 19, 1 << 21), min_size=1, max_size=12), st.randoms())
@settings(max_examples=20, deadline=None)
def test_memory_is_never_given_to_two(sizes, random):
    alive: dict[int, torch.Tensor] = {}
    for number, size in enumerate(sizes * 3):
        alive[number] = library.empty(size)
        for place in (0, -1):
            alive[number][place] = number
        if random.random() < 0.5:
            del alive[random.choice(list(alive))]
        assert all(t[0] == n and t[-1] == n for n, t in alive.items())


def _resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@given(
    st.tuples(*(st.integers(1, 9),) * 2),
    st.tuples(*(st.integers(1, 5),) * 2),
    st.tuples(*(st.integers(1, 4),) * 2),
    st.tuples(*(st.integers(0, 3),) * 2),
)
def test_the_size_of_a_result_is_pytorchs(size, kernel, stride, padding):
    geometry = Geometry((1, 1, *kernel), stride, padding)
    found = geometry.output_size(*size)
    if min(s + 2 * p - k for s, p, k in zip(size, padding, kernel, strict=True)) < 0:
        assert min(found) < 1
        return
    weight = torch.zeros(1, 1, *kernel)
    assert found == F.conv2d(torch.zeros(1, 1, *size), weight, None, stride, padding).shape[2:]
