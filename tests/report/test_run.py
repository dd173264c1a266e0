import re

import pytest

from freetickets.errors import FreeTicketsError
from freetickets.reading import read_json
from freetickets.report.run import read_run, read_runs
from freetickets.seal import seal_text
from freetickets.storage import write_json

from .conftest import log_rows


def fails_with(folder, *words):
    with pytest.raises(FreeTicketsError) as caught:
        read_run(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_a_run_is_read_back_as_it_was_written_and_has_nothing_more(write_run, runs):
    run = read_run(write_run("mine"))
    assert (run.name, run.description) == ("mine", "edst (M=2, S=0.8)")
    assert (run.results.dataset, run.results.samples) == ("tiny", 1234)
    assert [member["accuracy"] for member in run.results.members] == [0.7, 0.8]
    assert run.results.ensemble["nll"] == 0.45
    assert run.ledger.relative_flops == pytest.approx(0.4)
    assert run.ledger.seconds == 12.0
    assert [row.epoch for row in run.log] == [1, 2, 3, 4]
    assert [row.has("escape") for row in run.log] == [False, False, True, False]
    assert {row.itop_rate for row in runs[1].log} == {None}  # what was not measured
    results = read_run(write_run()).results
    parts = ("more", "shift", "natural", "ood", "attacks", "diversity", "features", "layers")
    assert [part for part in parts if getattr(results, part)] == []


def test_what_is_no_finished_run_is_refused_with_what_to_do(write_run, tmp_path):
    fails_with(tmp_path / "nothing", "no folder", "give the folder of a run")
    (tmp_path / "file").write_text("")
    fails_with(tmp_path / "file", "no folder")
    fails_with(tmp_path, "not the folder of a run", "give the folder that train saved in")
    folder = write_run()
    (folder / "metrics.json").unlink()
    fails_with(folder, "not finished", "train command again")
    (folder / "tickets").mkdir()
    for number in (1, 2):
        (folder / "tickets" / f"{number:02}.safetensors").touch()
    fails_with(folder, f"freetickets evaluate {folder}")
    (folder / "ledger.json").unlink()
    fails_with(folder, "not finished", "train command again")


@pytest.mark.parametrize("file", ["ledger.json", "metrics.json", "log.csv"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff\xfe", b"a,b\n1,2\n", None])
def test_a_damaged_or_missing_file_is_named_with_what_mends_it(write_run, file, content):
    folder = write_run()
    if content is not None:
        (folder / file).write_bytes(content)
        fails_with(folder, str(folder / file), "damaged", "train command again")
    elif file != "metrics.json":
        (folder / file).unlink()
        fails_with(folder, str(folder / file), "missing", "train command again")


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        *(("ledger.json", "dense_flops", value) for value in (0, "many", 10**400)),
        ("ledger.json", "dense_forward_flops", 0),
        ("ledger.json", "phases", []),
        ("ledger.json", "test_flops", float("nan")),
        ("ledger.json", "members", 0),
        *(("metrics.json", "samples", value) for value in (10**20, -1)),
        *(("metrics.json", "members", value) for value in ([], [{"accuracy": 0.5}])),
        ("metrics.json", "ensemble", None),
    ],
)
def test_a_value_that_cannot_be_meant_is_damage(write_run, file, key, value):
    folder = write_run()
    write_json(folder / file, {**read_json(folder / file), key: value})
    fails_with(folder, str(folder / file), "damaged")


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        *(((1, 1), ["out of order"]), ((2, 1), ["out of order"])),
        *(((epoch,), ["row 1.epoch"]) for epoch in (0, "nan", "inf", "soon", "")),
    ],
)
def test_epochs_that_cannot_be_meant_are_damage(write_run, epochs, words):
    log = [{**row, "epoch": epoch} for row, epoch in zip(log_rows(), epochs, strict=False)]
    fails_with(write_run(log=log), "log.csv", "train command", *words)


def test_a_truncated_log_is_damage(write_run):
    folder = write_run()
    (folder / "log.csv").write_text((folder / "log.csv").read_text()[:-20])
    fails_with(folder, "log.csv", "damaged")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((it, ["leave this run out"]) for it in ("", "7", "method: [", "options: 3", "lr: -1")),
        ("colour: red", ["'colour'", "install the version that wrote it"]),  # a later one
    ],
)
def test_settings_that_are_damaged_or_newer_are_named(write_run, content, words):
    folder = write_run()
    (folder / "config.yaml").write_text(seal_text(content))
    fails_with(folder, "config.yaml", *words)


def test_runs_of_one_test_set_have_other_names_and_count_once(write_run, refused, monkeypatch):
    mine = write_run("mine")
    other = write_run("other", metrics={"dataset": "huge"})
    fewer = write_run("fewer", metrics={"samples": 12})
    refused(r"mine tiny \(1,234 samples\), other huge", read_runs, [mine, other])
    refused(re.escape("fewer tiny (12)"), read_runs, [mine, fewer])
    folders = [write_run("a/edst"), write_run("b/edst"), write_run("b/dst")]
    assert [run.name for run in read_runs(folders)] == ["a/edst", "b/edst", "b/dst"]
    monkeypatch.chdir(folders[2])
    assert [run.name for run in read_runs([folders[2], ".", f"{folders[2]}/"])] == ["dst"]
    run = read_run(write_run("a\x1bb\udcff", log=log_rows([("re\bfine", 1, "collect")])))
    assert run.name == "a\ufffdb\ufffd"
    assert run.log[0].phase == "re\ufffdfine"
