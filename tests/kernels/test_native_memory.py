"""No memory left inside the compiled functions: an exception of Python's, and all is well later.

Run as a program with the name of one of its functions, this file does that: the kernel limits the
memory of the whole process.
"""

import contextlib
import os
import resource
import sys
import threading
from pathlib import Path

import pytest
import torch

from freetickets.errors import FreeTicketsError, is_out_of_memory
from freetickets.kernels import library
from freetickets.kernels.library import Geometry, MapsStruct, NormStruct

from .native_calls import RESULTS, WITH_LAYER, call, in_own_process, layer_arguments

pytestmark = [
    pytest.mark.skipif(
        not Path("/proc/self/statm").exists(), reason="only Linux limits the memory of a process"
    ),
    pytest.mark.skipif(
        "libasan" in os.environ.get("LD_PRELOAD", ""), reason="the sanitizer takes all addresses"
    ),
]
NAMES = [name for name in (*WITH_LAYER, "ft_linear_backward") if "fused" not in name]


# ---- in a process of its own


@contextlib.contextmanager
def little_memory(more):
    """The kernel gives this process so many bytes more, at the most."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def failure(work, more):
    """What is raised where there are so many bytes more."""
    with little_memory(more):
        try:
            work()
        except Exception as error:
            return error
    return None


def wide_layer(name):
    """A call of a layer that takes much memory besides its tensors, and its result."""
    side, count, is_linear = 1 << 15, 1 << 20, "linear" in name
    indices = torch.arange(count, dtype=torch.int32) * (side * side // count)
    size = (1, library.lanes(), 1, 3) if is_linear else (2, library.lanes(), 1, 6)
    given = layer_arguments(Geometry((side, side, 1, 1)), MapsStruct(*size), indices=indices)
    given |= {"dvalues": None, "dbias": None} if is_linear else {}
    result = given[RESULTS.get(name, ["y"])[0]]
    return lambda threads: call(name, given | {"threads": threads}), result


def start_threads():
    """Has OpenMP start its threads: where it can't, it ends the process."""
    x, y = torch.randn(64, 64, 64), torch.empty(64, 64, 64)
    library.call("ft_to_groups", NormStruct(64, 1, 64, 64, 64), x, y, 2)


def too_little_memory_is_an_exception(name, threads):
    """A call with more and more memory, until there is enough; then once more in peace."""
    start_threads()
    function, result = wide_layer(name)
    failures = 0
    for megabytes in range(0, 400, 4):
        result.fill_(-1)
        error = failure(lambda: function(int(threads)), megabytes << 20)
        if error is None:
            break
        assert isinstance(error, MemoryError)
        assert is_out_of_memory(error)
        assert str(error) == f"{name}: out of memory in the sparse kernels"
        failures += 1
    else:
        raise AssertionError("there never was enough")
    assert failures > 0, "it never was too little"
    found = result.clone()
    result.fill_(-1)
    function(int(threads))
    assert found.equal(result)
    # As in a process that never was short of memory.
    fresh = threading.Thread(target=lambda: (result.fill_(-1), function(1)))
    fresh.start()
    fresh.join()
    assert found.equal(result)


def a_new_thread_without_memory_gets_an_exception():
    """Its very first call: not even what every thread keeps is there yet."""
    function, _ = wide_layer("ft_forward")
    go, said = threading.Event(), []

    def first():
        go.wait()
        try:
            function(1)
        except MemoryError as error:
            said.append(error)

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    with little_memory(0):
        go.set()
        for thread in threads:
            thread.join()
    assert len(said) == 4
    function(1)


def fewer_threads_do_all_of_the_work():
    """Without OpenMP, and without memory for the stack of another thread."""
    library.native().ft_use_openmp(None, None)
    norm, x, y = NormStruct(64, 1, 64, 64, 64), torch.randn(64, 64, 64), torch.empty(64, 64, 64)
    for more in (0, 1 << 20, 9 << 20, 30 << 20):
        y.fill_(-1)
        with little_memory(more):
            library.call("ft_to_groups", norm, x, y, 64)
        assert y.equal(x.permute(1, 2, 0))


def large_tensors_come_and_go():
    """What was given back serves again while there is nothing else; too much is refused."""
    library.release_memory()
    some = [library.empty(1 << 20).fill_(number) for number in range(8)]
    lasting = some[::2]
    with little_memory(2 << 20):
        del some[1::2]
        for number in range(100):
            again = library.empty(1 << 20).fill_(number)
            assert again[0] == again[-1] == number
        del again
        error = failure(lambda: library.empty(1 << 28), 0)
        assert error is not None
        assert is_out_of_memory(error)
    for place, tensor in enumerate(lasting):
        assert tensor.eq(2 * place).all()
    library.empty(1 << 24).fill_(1)


# ---- tests


@pytest.mark.parametrize(
    "command",
    [
        *((too_little_memory_is_an_exception, name, n) for name in NAMES for n in "12"),
        (a_new_thread_without_memory_gets_an_exception,),
        (fewer_threads_do_all_of_the_work,),
        (large_tensors_come_and_go,),
    ],
    ids=lambda command: " ".join([command[0].__name__, *command[1:]]),
)
def test_in_a_process_of_its_own(command):
    function, *arguments = command
    # What the C library has set aside would serve, too: let it ask the kernel for large pieces.
    strict = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 18)}
    in_own_process(__name__, function.__name__, *arguments, **strict)


def test_a_failure_of_memory_is_no_mistake_in_the_words_of_both_languages(monkeypatch):
    class Library:
        @staticmethod
        def ft_plan(*_):
            return b"out of memory"

    monkeypatch.setattr(library, "native", Library)
    with pytest.raises(MemoryError, match="ft_plan: out of memory in the sparse kernels") as caught:
        library.call("ft_plan")
    assert not isinstance(caught.value, FreeTicketsError)
    assert is_out_of_memory(caught.value)
    header = Path(library.__file__).parent / "native" / "api.h"
    assert f'#define FT_OUT_OF_MEMORY "{library._OUT_OF_MEMORY.decode()}"' in header.read_text()


if __name__ == "__main__":
    torch.set_num_threads(2)
    globals()[sys.argv[1]](*sys.argv[2:])
