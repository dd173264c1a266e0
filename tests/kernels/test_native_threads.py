"""Calls from several threads of Python at once: ctypes lets go of the GIL."""

import random
import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from freetickets.errors import FreeTicketsError
from freetickets.kernels import library, ops
from freetickets.kernels.library import Geometry, MapsStruct, NormStruct

THREADS = 8

Job = Callable[[int], list[Tensor]]  # with so many threads of its own


def convolution(draw, lanes):
    """A layer in all directions, fused and prepared, too."""
    kernel, stride = ([draw.randint(*limits) for _ in "hw"] for limits in ((1, 4), (1, 3)))
    padding = [draw.randint(0, 2) for _ in "hw"]
    shape = (draw.randint(1, 48), draw.randint(1, 48), kernel[0], kernel[1])
    geometry = Geometry(shape, (stride[0], stride[1]), (padding[0], padding[1]))
    height, width = draw.randint(4, 14), draw.randint(4, 14)
    groups = draw.randint(1, 3)
    source = torch.Generator().manual_seed(draw.randrange(1 << 30))
    mask = torch.rand(torch.Size(shape).numel(), generator=source) < draw.choice([0.02, 0.1, 0.5])
    indices = mask.nonzero().flatten().int()
    values = torch.randn(indices.numel(), generator=source)
    x = torch.randn(groups, shape[1], height, width, lanes, generator=source)
    out = geometry.output_size(height, width)
    dy = torch.randn(groups, shape[0], *out, lanes, generator=source)
    layer, maps = library.layer_struct(geometry), MapsStruct(groups, lanes, height, width)
    count = indices.numel()

    def run(threads):
        plan = ops.make_plan(indices, geometry)
        y, fused, dx = torch.empty_like(dy), torch.empty_like(dy), torch.empty_like(x)
        dvalues, entries = torch.empty_like(values), torch.empty(count, dtype=torch.int64)

        def call(name, *arguments):
            library.call(name, layer, maps, *arguments, threads)

        call("ft_forward", x, values, plan, count, None, y)
        call("ft_prepare", values, plan, count, entries)
        call("ft_forward_fused", x, entries, plan, count, None, None, 0, None, dy, 1, fused)
        call("ft_input_gradient", dy, values, plan, count, dx)
        call("ft_weight_gradient", x, dy, plan, count, dvalues)
        return [y, fused, dx, dvalues, entries]

    return run


def norm(draw, lanes):
    """A BatchNorm there and back, and the way into groups and out of them."""
    groups, channels, positions = draw.randint(1, 4), draw.randint(1, 30), draw.randint(1, 200)
    batch = groups * lanes - draw.randrange(lanes)
    source = torch.Generator().manual_seed(draw.randrange(1 << 30))
    samples = torch.randn(batch, channels, positions, generator=source)
    weight, bias = torch.randn(2, channels, generator=source)
    weight, bias = weight.clone(), bias.clone()
    numbers = NormStruct(batch, groups, lanes, channels, positions)

    def run(threads):
        x, y, scaled, dx = (torch.empty(groups, channels, positions, lanes) for _ in range(4))
        mean, variance, dweight, dbias = (torch.empty(channels) for _ in range(4))
        back = torch.empty_like(samples)

        def call(name, *arguments):
            library.call(name, numbers, *arguments, threads)

        call("ft_to_groups", samples, x)
        call("ft_normalize", x, weight, bias, 1e-5, 1, y, mean, variance)
        call("ft_scale", x, weight, bias, mean, variance, 1e-5, 0, scaled)
        given = (x, y, weight, bias, mean, variance, 1e-5, 1, 1)
        call("ft_normalize_backward", *given, dx, dweight, dbias)
        call("ft_from_groups", scaled, back)
        assert torch.equal(x[0, ..., 0], samples[0])
        return [x, y, mean, variance, scaled, dx, dweight, dbias, back]

    return run


def memory(draw, lanes):
    """Large tensors, which take and give back common memory."""
    sizes = [draw.randint(1 << 19, 1 << 21) for _ in range(3)]
    number = draw.random()

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


def assert_same(found, wanted):
    """Bit for bit."""
    for mine, theirs in zip(found, wanted, strict=True):
        assert torch.equal(mine, theirs)


def test_results_are_the_same_bits_from_eight_threads_at_once(instructions):
    draw = random.Random(15)
    kinds = [convolution] * 24 + [norm] * 12 + [memory] * 4
    jobs = [kind(draw, library.lanes()) for kind in kinds]
    wanted = [job(1) for job in jobs]

    def work(number):
        mine = random.Random(number)
        for place in mine.sample(range(len(jobs)), len(jobs)) * 2:
            assert_same(jobs[place](mine.choice([1, 1, 2])), wanted[place])

    in_threads(work)


def test_whoever_selects_an_instruction_set_disturbs_no_call(instructions):
    available = []
    for name in ("baseline", "avx2", "avx512"):
        try:
            library.select_instruction_set(name)
        except FreeTicketsError:
            continue
        available.append(name)
    draw, lanes = random.Random(16), 16  # which suits all of them
    geometry, size = Geometry((24, 16, 3, 3), (1, 1), (1, 1)), (9, 9)
    indices = torch.arange(0, 24 * 16 * 9, 7, dtype=torch.int32)
    values, x = torch.randn(indices.numel()), torch.randn(2, 16, *size, lanes)
    layer, maps = library.layer_struct(geometry), MapsStruct(2, lanes, *size)
    plan = ops.make_plan(indices, geometry)

    def forward():
        y = torch.empty(2, 24, *size, lanes)
        library.call("ft_forward", layer, maps, x, values, plan, indices.numel(), None, y, 1)
        return y

    wanted = []
    for name in available:
        library.select_instruction_set(name)
        wanted.append(forward())

    def work(number):
        for _ in range(100):
            if number == 0:
                library.select_instruction_set(draw.choice(available))
            found = forward()
            assert any(torch.equal(found, each) for each in wanted)

    try:
        in_threads(work)
    finally:
        library.select_instruction_set(instructions)


def first_calls():
    """All threads are the first to load the library, and to call it."""
    x = torch.randn(40, 3, 5, 5)

    def work(number):
        return ops.from_groups(ops.to_groups(x, library.lanes()), 40)

    for found in in_threads(work):
        assert torch.equal(found, x)


def test_all_threads_may_be_the_first():
    command = [sys.executable, __file__]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="only Linux tells the memory of a process"
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_thread_that_ends_leaves_nothing_behind(threads):
    """Neither in the memory of the process nor in the results of the next."""
    job = convolution(random.Random(17), library.lanes())
    wanted = job(1)
    for number in range(60):
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda into=found: into.extend(job(threads)))
        thread.start()
        thread.join()
        assert_same(found, wanted)
        if number == 9:
            before = _mapped()
    assert _mapped() - before < 300 << 20  # each had five pieces of 2 MB at least


def _mapped():
    """The bytes of this process's memory, used or not."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    first_calls()
