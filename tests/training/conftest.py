"""Trainings that end before they are done, in this process."""

import itertools
import os

import pytest

from freetickets.training.progress import Reporter


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


def kill():
    """Ends the process, as far as a training can tell."""
    raise Killed


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


@pytest.fixture(params=["before", "after"])
def killed_around_each_write(request, monkeypatch):
    """Trains in a new folder for each write there is, and is killed before it, or after it."""

    def run(train):
        replace = os.replace
        for number in itertools.count(1):
            count = itertools.count(1)

            def counted(*paths, count=count, number=number):
                last = next(count) == number
                if not last or request.param == "after":
                    replace(*paths)
                if last:
                    raise Killed

            with monkeypatch.context() as patch:
                patch.setattr(os, "replace", counted)
                try:
                    train(str(number))
                    return
                except Killed:
                    pass
            yield str(number)

    return run
