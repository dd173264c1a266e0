import contextlib
import hashlib
import io
import itertools
import math
import signal
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from freetickets.cli import main
from freetickets.errors import FreeTicketsError
from freetickets.kernels import choice, choices, library
from freetickets.methods import METHODS
from freetickets.training.progress import Reporter


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tiny networks are slower with more threads, and tests may run side by side."""
    torch.set_num_threads(1)


@pytest.fixture
def other_kernels():
    """Selects an instruction set, for this test; skips if there is none such."""
    before = library.instruction_set()

    def select(name):
        try:
            library.select_instruction_set(name)
        except FreeTicketsError as error:
            pytest.skip(str(error))

    yield select
    library.select_instruction_set(before)


@pytest.fixture
def skipping_zeros(monkeypatch):
    """Layers that have zeros skip them, also where other ways would be faster: tiny layers do."""
    for name in ("convolution_ways", "linear_ways"):
        real = getattr(choices, name)

        def ways(*arguments, real=real):
            given = arguments[0]
            size, nonzeros = (
                (math.prod(given.geometry.shape), given.nonzeros)
                if isinstance(given, choice.Work)
                else (arguments[0] * arguments[1], arguments[2])
            )
            return 0 if nonzeros < size else real(*arguments)

        monkeypatch.setattr(choices, name, ways)


@pytest.fixture(scope="session")
def features():
    """Sixty samples of three classes, which a tiny network can learn."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    return torch.randn(60, 6, generator=generator) + 2 * torch.eye(6)[labels], labels


@pytest.fixture(scope="session")
def images_npz(tmp_path_factory):
    """A data set of small grey images, each class bright in a part of its own."""
    rng = np.random.default_rng(0)

    def draw(count):
        labels = np.arange(count) % 3
        images = rng.integers(0, 120, (count, 8, 8), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 3] += 90
        return images, labels

    (x_train, y_train), (x_test, y_test) = draw(120), draw(45)
    path = tmp_path_factory.mktemp("data") / "bars.npz"
    names = np.array(["top", "middle", "bottom"])
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, classes=names)
    return path


FLAGS = "--model mlp-8 --epochs 4 --batch-size 16 --validation 0.1 --quiet --trajectory 2"
# Not "auto": what is faster may differ from one run to the next, and so the bits.
FLAGS += f" --backend {'sparse' if library.available() else 'masked'} --checkpoint-seconds 0"


@pytest.fixture(scope="session")
def command(images_npz):
    """The arguments that train two tickets by a method."""

    def make(method="edst", *more):
        flags, options = FLAGS, {field.name for field in fields(METHODS[method])}
        flags += " --tickets 2" * ("tickets" in options)
        flags += " --cycling 0.6" * ("cycling" in options)  # of several steps each
        return ["train", method, "--dataset", str(images_npz), *" ".join([flags, *more]).split()]

    return make


@pytest.fixture(scope="session")
def finished(command, tmp_path_factory):
    """The folder of a run that one process trained and nothing happened to; made once."""
    made: dict[tuple[str, ...], Path] = {}

    def train(method="edst", *more):
        key = (method, *more)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("finished") / method
            with contextlib.redirect_stdout(io.StringIO()):
                assert main([*command(*key), "--output", str(made[key])]) == 0
        return made[key]

    return train


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


def kill():
    """Ends the process, as far as a training can tell."""
    raise Killed


def interrupt(number=signal.SIGINT):
    """Asks this process to stop."""
    signal.raise_signal(number)


@pytest.fixture
def at_step(monkeypatch):
    """Makes something happen at a step, counted from now on; at step 0 nothing ever does."""

    def set_up(step, action=kill):
        count = itertools.count(1)
        monkeypatch.setattr(Reporter, "step", lambda *_: next(count) == step and action())

    return set_up


@pytest.fixture
def killed_at(at_step):
    """Trains, and is killed at steps counted in each of its lives."""

    def run(train, *steps):
        for step in steps:
            at_step(step)
            with pytest.raises(Killed):
                train()
        at_step(0)

    return run


class Answer(NamedTuple):
    """What a command gave back; a signal is a negative code."""

    code: int
    out: str
    err: str

    @property
    def line(self):
        """The message of a command that failed as a mistake should: code 2, one line on stderr."""
        assert self.code == 2, self
        (line,) = self.err.splitlines()
        assert line.startswith("freetickets: ")
        return line


@pytest.fixture
def cli(capsys):
    """Runs a command in this process."""

    def run(*arguments):
        capsys.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Answer(code, *capsys.readouterr())

    return run


@pytest.fixture
def one_line():
    """The message of a command that failed as a mistake should."""

    def check(answer):
        assert answer.out == ""
        return str(answer.line)

    return check


@pytest.fixture(scope="session")
def refused():
    """Checks that a call fails with one line that matches; returns the error."""

    def check(match, call, *arguments, **options):
        with pytest.raises(FreeTicketsError, match=match) as caught:
            call(*arguments, **options)
        assert "\n" not in str(caught.value)
        return caught.value

    return check


@pytest.fixture
def digests():
    """The SHA-256 of each file of a folder, by its path within."""

    def digest(folder):
        return {
            str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        }

    return digest


def _same(a, b):
    if isinstance(a, Tensor):
        return (
            isinstance(b, Tensor)
            and (a.dtype, a.shape) == (b.dtype, b.shape)
            and a.contiguous().reshape(-1).view(torch.uint8).tolist()
            == b.contiguous().reshape(-1).view(torch.uint8).tolist()
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return repr(a) == repr(b)  # NaN is NaN, 0.0 is not -0.0


@pytest.fixture(scope="session")
def same():
    """Whether two trees are equal to the last bit, the type and the order of keys."""
    return _same
