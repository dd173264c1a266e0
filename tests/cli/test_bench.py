"""`freetickets bench`: what is printed, and what is refused."""

import json
from pathlib import Path

import pytest

from freetickets.bench import NAMES, kernels, train
from freetickets.bench.figure import ONE_DENSE, Point
from freetickets.bench.timing import Ratio


def some(settings):
    """Three ratios and a line, about the settings that arrived."""
    seconds = {"ours": 0.5, "other": 2.0}
    name = f"thing of {settings.batch or 7}, {settings.repeats}"
    yield Ratio(name, 0.25, 0.2, 0.5, 0.25, seconds, settings.repeats)
    yield Ratio("missed", 0.75, 0.7, 0.5, None, seconds, settings.repeats)
    yield Ratio("free", 2.0, 2.0, None, None, {}, 1, memory={"ours": 3e6, "other": 1.5e6})
    yield "a line"


def curve(settings):
    """A line and a curve."""
    for name, sparsity, value in ((ONE_DENSE, 0.0, 0.5), ("ERK", 0.8, 0.75)):
        row = Ratio("point", value, value, None, None, {"a": 1.0, "b": 1.0}, 1)
        yield Point(**vars(row), curve=name, sparsity=sparsity)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch):
    for module, what in ((kernels, "kernels"), (train, "train")):
        for name in NAMES[what]:
            fake = curve if name == "sparsity" else some
            monkeypatch.setattr(module, name.replace("-", "_"), fake)


def test_each_ratio_is_a_row_beside_its_bar(cli):
    answer = cli("bench", "kernels", "--only", "wide", "--repeats", 3, "-b", 5)
    assert (answer.code, answer.err) == (0, "")
    machine, header, met, missed, free, line = answer.out.splitlines()
    assert machine.startswith("cpu ")
    assert all(f"{word} " in machine for word in ("threads", "torch", "python", "kernels"))
    assert header.split()[:5] == ["ratio", "speed-up", "bar", "aim", "met"]
    assert met.split()[:5] == ["0.2500", "4.00x", "0.500", "0.250", "aim"]
    assert "thing of 5, 3 (ours 500 ms, other 2 s; best 0.2000; repeats 3)" in met
    assert missed.split()[:5] == ["0.7500", "1.33x", "0.500", "-", "NO"]
    assert free.split()[:5] == ["2.0000", "0.50x", "-", "-", "-"]
    assert "ours 3 MB, other 1.5 MB" in free
    assert line == "a line"


def test_the_json_keys_are_stable_and_all_is_measured_but_what_must_be_named(cli):
    answer = json.loads(cli("bench", "kernels", "--only", "wide", "--json").out)
    assert list(answer) == ["machine", "ratios", "notes"]
    assert [row["met"] for row in answer["ratios"]] == [True, False, None]
    assert answer["notes"] == ["a line"]
    documented = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    (row,) = (line for line in documented.splitlines() if line.startswith("| `bench` |"))
    for key in [*answer, *answer["machine"], *answer["ratios"][0]]:
        assert f"`{key}`" in row
    text = " ".join(cli("bench", "--help").out.split())
    assert all(f"{what}: {', '.join(names)}" in text for what, names in NAMES.items())
    for flags, names in (
        ((), ["thing of 7, 10", "missed", "free"] * 6),
        (("--only", "sparsity"), ["point"] * 2),
    ):
        rows = json.loads(cli("bench", "train", *flags, "--json").out)["ratios"]
        assert [row["name"] for row in rows] == names


def test_a_figure_is_drawn_of_the_costs_or_refused_before_measuring(cli, one_line, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "new" / "sparsity.svg"
    answer = cli("bench", "train", "--figure", path)
    assert answer.code == 0
    assert answer.out.endswith(f"saved in {path}\n")
    assert (answer.out.count("point"), answer.out.count("thing")) == (2, 0)
    assert f"{ONE_DENSE}: 0.5" in path.read_text()
    assert "--figure must end in" in one_line(cli("bench", "train", "--figure", "x.jpg"))
