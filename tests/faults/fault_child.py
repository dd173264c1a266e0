"""What runs in a process of its own: a command, and a fault that really happens to it.

A fault is a function that is called before the command; `functools.partial` gives it its arguments.
"""

import contextlib
import ctypes
import errno
import fnmatch
import functools
import itertools
import os
import random
import resource
import signal
import stat
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

# What a training writes but for checkpoints, in order; of what is written often, also a later time.
WRITES = [
    ("config.yaml", 1), ("trajectory/*", 2), ("tickets/01.safetensors", 1),
    ("tickets/02.safetensors", 1), ("log.csv", 1), ("log.csv", 4), ("choices.json", 1),
    ("ledger.json", 1), ("predictions/bars.npz", 1), ("metrics.json", 1),
]  # fmt: skip
STAGES = ("opened", "half written", "written", "renamed", "safe")


def run(arguments, out, err, faults):
    """Runs a command with faults, and ends the process with its exit code."""
    import torch

    from freetickets.cli import main

    # Pipes, not files: what is said must not be lost where files can't be written.
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)
    for fault in faults:
        fault()
    code = 1
    try:
        code = main(list(arguments))
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die():
    """As the kernel ends a process: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


# ---- writing


def when_writing(pattern, number, action):
    """Acts when a file whose path fits is about to be written for the given time, from 1 on."""
    make, times = tempfile.mkstemp, itertools.count(1)

    def counted(*, dir, prefix):  # noqa: A002
        made = make(dir=dir, prefix=prefix)
        fits = fnmatch.fnmatch(str(dir / prefix.strip(".")), f"*/{pattern}")
        if fits and next(times) == number:
            action()
        return made

    tempfile.mkstemp = counted  # type: ignore[assignment]


def no_room(pattern, number=1):
    """From a write on, the kernel refuses all files beyond 64 bytes."""
    when_writing(pattern, number, limit_files)


def limit_files():
    """The kernel refuses what would make a file larger than 64 bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def full_disk(pattern, filler, number=1):
    """From a write on, the disk is full."""
    when_writing(pattern, number, lambda: fill(filler))


def fill(filler):
    """Fills a disk to the last byte."""
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    size = 1 << 16
    while size:
        try:
            os.write(descriptor, bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            size //= 2
    os.close(descriptor)


def killed_in_write(pattern, stage, number=1):
    """SIGKILL inside the write of a file, at one of `STAGES`."""
    fdopen, fsync, replace = os.fdopen, os.fsync, os.replace

    def half(*arguments):
        file = fdopen(*arguments)

        def write_half(parts):
            data = b"".join(parts)
            file.write(data[: len(data) // 2])
            file.flush()
            die()

        return contextlib.nullcontext(SimpleNamespace(writelines=write_half))

    def renamed(*paths):
        replace(*paths)
        die()

    def safe(descriptor):
        fsync(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            die()

    def prepare():
        if stage == "opened":
            die()
        elif stage == "half written":
            os.fdopen = half
        elif stage == "written":
            os.replace = lambda *_: die()  # type: ignore[assignment]
        elif stage == "renamed":
            os.replace = renamed  # type: ignore[assignment]
        else:
            os.fsync = safe  # type: ignore[assignment]

    when_writing(pattern, number, prepare)


# ---- training


def at_step(step, action):
    """Acts after a step, counted in this life, and after each later one."""
    from freetickets.training.progress import Reporter

    show, steps = Reporter.step, itertools.count(1)

    def counted(self, *news):
        show(self, *news)
        if next(steps) >= step:
            action()

    Reporter.step = counted  # type: ignore[method-assign]


def killed_in_phase(run, phase, step, seed):
    """SIGKILL at a random moment after a step of a phase, and not later than two steps after it."""
    from freetickets.training.trainer import Trainer

    train, draw, seen = Trainer._train_step, random.Random(seed), 0

    def watched(self, session, span, *more):
        nonlocal seen
        train(self, session, span, *more)
        state = self.state
        if (state.run, span.phase.name) != (run, phase) and not seen:
            return
        seen += 1
        if seen == step:
            threading.Timer(draw.uniform(0, 0.01), die).start()
        if seen == step + 2:
            die()

    Trainer._train_step = watched  # type: ignore[method-assign]


def little_memory(step, more=0):
    """After a step the kernel gives this process no more than so many bytes."""

    @functools.cache
    def limit():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

    if step:
        at_step(step, limit)
    else:
        limit()


def clock_goes_back(step, seconds):
    """After a step, the time of day is that of the past; it jumps further back with each step."""
    real, behind = time.time, 0.0

    def earlier():
        nonlocal behind
        behind += seconds

    time.time = lambda: real() - behind
    at_step(step, earlier)


# ---- rights


def obey_permissions():
    """Root gives up the right to ignore the permission bits of files; others have none."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this process
    rights = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, rights) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for number in (1, 2, 3):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER
        rights[0] &= ~(1 << number)
    if libc.capset(header, rights) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def standard_output_to(path):
    """What is printed goes to a file."""
    descriptor = os.open(path, os.O_WRONLY)
    os.dup2(descriptor, 1)


def protect(folder, number):
    """Takes the right to write to a folder away when so many files have been written there."""
    replace, times = os.replace, itertools.count(1)

    def counted(*paths):
        replace(*paths)
        if Path(paths[1]).parent == Path(folder) and next(times) == number:
            os.chmod(folder, 0o555)

    os.replace = counted  # type: ignore[assignment]
