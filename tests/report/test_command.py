import csv
import json
import sys

import numpy as np
import pytest

from freetickets.report.run import read_runs
from freetickets.report.tables import make_rows

from .fake_runs import FAKES, write_fake


def test_the_table_is_printed_and_the_page_written(folders, tmp_path, cli):
    page = tmp_path / "deep" / "page.html"
    answer = cli("report", *folders, "--output", page)
    assert answer.code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    for text in ("tiny, 1,234 test samples", "75.00%", "85.00%", "0.4500", "0.400", "2.50"):
        assert text in answer.out
    table, saved, _ = answer.out.partition(f"saved in {page}")
    assert saved
    assert "edst (M=2, S=0.8)" in table
    assert max(map(len, table.splitlines())) <= 100
    tables = page.parent / "page-tables"
    assert {path.name for path in tables.glob("main.*")} == {"main.csv", "main.md", "main.tex"}
    with (tables / "main.csv").open(newline="") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert float(rows["edst"]["Acc"]) == 0.85
    assert rows["edst"]["group"] == "one-pass"


def test_a_narrow_terminal_shows_fewer_columns(folders, tmp_path, cli, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    answer = cli("report", *folders, "-o", tmp_path / "page.html")
    assert answer.code == 0
    assert [text in answer.out for text in ("85.00%", "75.00%", "2.50")] == [True, False, False]


def test_json_has_stable_keys(folders, tmp_path, cli):
    page = tmp_path / "page.html"
    told = cli("report", *folders, "-o", page, "--json")
    assert told.code == 0
    answer = json.loads(told.out)
    assert answer["output"] == str(page)
    assert page.exists()
    assert [row["run"] for row in answer["rows"]] == ["dense", "edst"]
    assert list(answer["rows"][0]) == list(make_rows(read_runs(folders))[0].as_dict())
    assert answer["rows"][1]["accuracy"] == 0.85
    assert answer["tables"] == str(tmp_path / "page-tables")


def test_tables_go_where_they_are_wanted_and_names_are_no_markup(write_run, tmp_path, cli):
    page, tables = tmp_path / "page.html", tmp_path / "numbers"
    answer = cli("report", write_run("[red]"), "-o", page, "--tables", tables)
    assert answer.code == 0
    assert "[red]" in answer.out
    assert (tables / "member-scores.tex").exists()
    assert not (tmp_path / "page-tables").exists()


def test_mistakes_are_one_line_before_any_page(write_run, folders, tmp_path, cli, one_line):
    page = tmp_path / "page.html"
    unlike = [write_run("a"), write_run("b", metrics={"samples": 9})]
    for runs, flags, words in (
        (unlike, ["-o", page], "these runs have different test sets: a tiny (1,234 samples), "
         "b tiny (9); report them separately"),
        (folders, ["-o", page, "--reference", "dst"],
         "the reference 'dst' is not one of the runs: give one of edst, dense"),
        *((folders, ["-o", output], ". is a folder: name a file, such as report.html")
          for output in (".", "")),
    ):  # fmt: skip
        assert one_line(cli("report", *runs, *flags)) == f"freetickets: {words}"
        assert not page.exists()


@pytest.mark.parametrize(
    ("command", "changed", "words"),
    [
        ("report", {"info": np.array("{}")}, "is damaged"),
        ("compare", {"info": np.array("[1]")}, "is damaged"),
        ("compare", {"log_probs": np.zeros((4, 20), np.float32)}, "holds other predictions than"),
    ],
)
def test_predictions_that_are_damaged_or_others_are_one_line_and_code_2(
    command, changed, words, tmp_path, cli, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    folders = [write_fake(tmp_path, fake, 20, rich=False) for fake in FAKES[:2]]
    path = folders[1] / "predictions" / "cifar10.npz"
    np.savez(path, **{**np.load(path), **changed})
    answer = cli(command, *folders)
    assert answer.code == 2
    assert answer.err.startswith(f"freetickets: {path} {words}")
    assert answer.err.count("\n") == 1


def test_without_matplotlib_the_table_still_comes(folders, tmp_path, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    answer = cli("report", *folders, "-o", tmp_path / "page.html")
    assert answer.code == 2
    assert "85.00%" in answer.out
    needs = "drawing figures needs an extra: pip install 'freetickets[report]'"
    assert answer.err == f"freetickets: {needs}\n"
