"""Calls from several threads of Python at once: ctypes lets go of the GIL."""

import random
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, ops
from freetickets.kernels.library import Geometry, MapsStruct, NormStruct

from .native_calls import (
    WITH_LAYER,
    WITH_NORM,
    computed,
    in_own_process,
    layer_arguments,
    norm_arguments,
)

THREADS = 8


def convolution(draw):
    """A layer in all directions, fused and prepared, too."""
    kernel, stride = ([draw.randint(*limits) for _ in "hw"] for limits in ((1, 4), (1, 3)))
    shape = (draw.randint(1, 48), draw.randint(1, 48), *kernel)
    geometry = Geometry(shape, tuple(stride), (draw.randint(0, 2), draw.randint(0, 2)))
    size = draw.randint(1, 3), library.lanes(), draw.randint(4, 14), draw.randint(4, 14)
    density, seed = draw.choice([0.02, 0.1, 0.5]), draw.randrange(1 << 30)
    given = layer_arguments(geometry, MapsStruct(*size), density, seed=seed)
    return job(("ft_plan", *WITH_LAYER), given | {"residual": given["dy"], "relu": 1})


def norm(draw):
    """A BatchNorm there and back, and the way into groups and out of them."""
    groups, lanes = draw.randint(1, 4), library.lanes()
    batch = groups * lanes - draw.randrange(lanes)
    numbers = NormStruct(batch, groups, lanes, draw.randint(1, 30), draw.randint(1, 200))
    return job(WITH_NORM, norm_arguments(numbers, draw.randrange(1 << 30)))


def job(functions, given):
    """What all these functions compute, with so many threads of their own."""
    return lambda threads: [
        each for name in functions for each in computed(name, given | {"threads": threads})
    ]


def memory(draw):
    """Large tensors, which take and give back common memory."""
    sizes, number = [draw.randint(1 << 19, 1 << 21) for _ in range(3)], draw.random()

    def run(threads):
        alive = [library.empty(size).fill_(number + place) for place, size in enumerate(sizes)]
        del alive[1]
        alive.append(library.empty(sizes[1]).fill_(number - 1))
        for tensor, wanted in zip(alive, (number, number + 2, number - 1), strict=True):
            assert torch.all(tensor == torch.tensor(wanted))
        return []

    return run


def in_threads(work):
    """Calls a function with the number of the thread, in all of them at the same moment."""
    start = threading.Barrier(THREADS)

    def wait(number):
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(wait, range(THREADS)))


def same(found, wanted):
    return all(torch.equal(*both) for both in zip(found, wanted, strict=True))


def test_results_are_the_same_bits_from_eight_threads_at_once(instructions):
    draw = random.Random(15)
    jobs = [kind(draw) for kind in [convolution] * 24 + [norm] * 12 + [memory] * 4]
    wanted = [job(1) for job in jobs]

    def work(number):
        mine = random.Random(number)
        for place in mine.sample(range(len(jobs)), len(jobs)) * 2:
            assert same(jobs[place](mine.choice([1, 1, 2])), wanted[place])

    in_threads(work)


def test_whoever_selects_an_instruction_set_disturbs_no_call(instructions):
    # 16 lanes suit all of them.
    given = layer_arguments(Geometry((24, 16, 3, 3), padding=(1, 1)), MapsStruct(2, 16, 9, 9))
    wanted = {}
    for name in ("baseline", "avx2", "avx512"):
        try:
            library.select_instruction_set(name)
        except FreeTicketsError:
            continue
        wanted[name] = computed("ft_forward", given)
    draw = random.Random(16)

    def work(number):
        for _ in range(100):
            if number == 0:
                library.select_instruction_set(draw.choice(list(wanted)))
            found = computed("ft_forward", given)
            assert any(same(found, each) for each in wanted.values())

    try:
        in_threads(work)
    finally:
        library.select_instruction_set(instructions)


def test_all_threads_may_be_the_first():
    """To load the library, and to call it."""
    in_own_process(__name__)


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="only Linux tells the memory of a process"
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_thread_that_ends_leaves_nothing_behind(threads):
    """Neither in the memory of the process nor in the results of the next."""
    job = convolution(random.Random(17))
    wanted = job(1)
    for number in range(60):
        found = []
        thread = threading.Thread(target=lambda into=found: into.extend(job(threads)))
        thread.start()
        thread.join()
        assert same(found, wanted)
        if number == 9:
            before = _mapped()
    assert _mapped() - before < 300 << 20  # each had five pieces of 2 MB at least


def _mapped():
    """The bytes of this process's memory, used or not."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    x = torch.randn(40, 3, 5, 5)
    for found in in_threads(lambda _: ops.from_groups(ops.to_groups(x, library.lanes()), 40)):
        assert torch.equal(found, x)
