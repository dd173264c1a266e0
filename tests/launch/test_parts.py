"""A plan that is trained in parts ends like one that is not, bit for bit."""

import contextlib
import itertools
import os

import pytest

from freetickets.launch.parts import waves
from freetickets.methods import METHODS, Setting, get_recipe
from freetickets.storage import load_tree

from ..conftest import Killed, interrupt

SEVERAL = ("dst", "static", "dense-ensemble", "pf", "ltr")


def last_checkpoint(folder):
    """What the newest one holds, but for times."""
    tree = load_tree(max((folder / "checkpoint").iterdir()), "freetickets-checkpoint")
    for row in tree["state"]["rows"]:
        row["seconds"] = 0
    tree["state"]["seconds"] = dict.fromkeys(tree["state"]["seconds"], 0)
    return tree


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("method", SEVERAL)
def test_parts_equal_the_serial_run(cli, command, finished, assert_same, same, tmp_path, method):
    assert cli(*command(method), "-o", tmp_path / "run", "--jobs", 2).code == 0
    assert_same(tmp_path / "run", finished(method))
    assert same(*map(last_checkpoint, (tmp_path / "run", finished(method))))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("method", ["dst", "ltr"])
@pytest.mark.parametrize("steps", [5, 40])
def test_a_stopped_serial_run_goes_on_in_parts(
    cli, command, finished, assert_same, tmp_path, at_step, method, steps
):
    expected = finished(method)
    at_step(steps, interrupt)
    assert cli(*command(method), "-o", tmp_path / "run").code == 130
    at_step(0)
    assert cli(*command(method), "-o", tmp_path / "run", "--jobs", 2).code == 0
    assert_same(tmp_path / "run", expected)


@pytest.mark.usefixtures("in_this_process")
def test_killed_at_any_write_ends_alike(cli, command, finished, assert_same, tmp_path, monkeypatch):
    expected, run, replace = finished("dst"), tmp_path / "run", os.replace
    for number in range(1, 200, 3):
        count = itertools.count(1)

        def counted(*paths, count=count, number=number):
            if next(count) == number:
                raise Killed
            replace(*paths)

        monkeypatch.setattr(os, "replace", counted)
        with contextlib.suppress(Killed):
            assert cli(*command("dst"), "-o", run, "--jobs", 2).code == 0
            break
    assert 3 < number < 199
    assert_same(run, expected)


@pytest.mark.usefixtures("in_this_process")
def test_other_settings_are_refused_beside_parts(cli, one_line, command, tmp_path, at_step):
    at_step(5, interrupt)
    assert cli(*command("dst"), "-o", tmp_path, "--jobs", 2).code == 2
    assert (tmp_path / "parts").exists()
    line = one_line(cli(*command("dst"), "-o", tmp_path, "--jobs", 2, "--lr", 0.01))
    assert f"{tmp_path} holds a run with other settings (lr: 0.05 -> 0.01)" in line


def test_a_run_waits_for_what_it_starts_from_and_one_run_says_it_is_alone(cli, command, tmp_path):
    setting = Setting(get_recipe("small"))
    for name, kind in METHODS.items():
        plan = kind().plan(setting)
        order = waves(plan)
        assert sorted(run for wave in order for run in wave) == list(range(len(plan.runs)))
        for wave in order:
            started = [plan.runs[run].start is not None for run in wave]
            assert all(started) or not any(started), name
    assert waves(METHODS["ltr"](tickets=2).plan(setting)) == [[0], [1, 2]]
    answer = cli(*command("edst"), "-o", tmp_path, "--jobs", 2)
    assert answer.code == 0
    assert answer.err == "warning: edst is a single run: there is nothing to train side by side\n"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--jobs 0", "--jobs: give 1 or more, not 0"),
        ("--launcher locl", "unknown launcher 'locl': did you mean 'local'?"),
        ("--launcher ray --jobs 2", "--jobs is only for --launcher local"),
        ("--jobs 2 --address auto", "--address is only for --launcher ray"),
        ("--gpus-per-task 1", "--gpus-per-task is only for --launcher ray"),
        ("--launcher ray --cpus-per-task -1", "--cpus-per-task -1: give 0 or more"),
    ],
)
@pytest.mark.parametrize("what", ["train dst", "reproduce fgsm"])
def test_mistakes_are_one_line(cli, one_line, what, flags, words):
    assert words in one_line(cli(*what.split(), *flags.split()))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train dst --jobs 2", "use one of the two"),
        ("reproduce all --scale smoke", "start it without torchrun"),
    ],
)
def test_torchrun_excludes_side_by_side(cli, one_line, monkeypatch, tmp_path, arguments, says):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "some")
    assert says in one_line(cli(*arguments.split(), "--output", tmp_path / "run"))
    assert not (tmp_path / "run").exists()
