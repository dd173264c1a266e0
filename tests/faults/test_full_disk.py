"""A disk without room: one line, nothing half written, and with room again the same end."""

import shutil
from functools import partial
from pathlib import Path

import fault_child
import pytest

WRITES = [("checkpoint/*", 1), ("checkpoint/*", 7), *fault_child.WRITES]


@pytest.mark.parametrize(("file", "number"), WRITES, ids=[f"{f}-{n}" for f, n in WRITES])
def test_a_training_without_room_ends_in_one_line_and_goes_on_the_same(
    child, command, assert_whole, assert_goes_on, tmp_path, file, number
):
    run = tmp_path / "run"
    answer = child(*command(), "-o", run, faults=(partial(fault_child.no_room, file, number),))
    assert "can't write " in answer.line
    assert "File too large; what was saved before is untouched" in answer.line
    assert answer.out == ""
    assert_whole(run)
    assert_goes_on(run)


@pytest.mark.parametrize("file", ["checkpoint/*", "tickets/02.safetensors", "predictions/*"])
def test_a_real_full_disk_does_as_much(child, command, assert_whole, assert_goes_on, mounted, file):
    disk = mounted("size=2m")
    fault = partial(fault_child.full_disk, file, str(disk / "filler"))
    answer = child(*command(), "-o", disk / "run", faults=(fault,))
    assert "No space left on device; what was saved before is untouched" in answer.line
    assert_whole(disk / "run")
    (disk / "filler").unlink()
    assert_goes_on(disk / "run")


def test_without_room_for_a_lock_or_an_answer_nothing_is_left(child, command, tmp_path, finished):
    answer = child(*command(), "-o", tmp_path / "run", faults=(fault_child.limit_files,))
    assert "can't write " in answer.line
    assert not list(tmp_path.iterdir())
    fault = partial(fault_child.standard_output_to, "/dev/full")
    answer = child("compare", finished(), "--json", faults=(fault,))
    assert answer.line == "freetickets: can't print: No space left on device"


@pytest.mark.parametrize("file", ["predictions/bars.npz", "predictions/ood/*", "metrics.json"])
def test_an_evaluation_without_room_leaves_the_old_one(child, finished, digests, tmp_path, file):
    run = tmp_path / "run"
    shutil.copytree(finished(), run)
    before = digests(run)
    evaluate = ("evaluate", run, "--fresh", "--ood", "gaussian-noise", "--quiet")
    answer = child(*evaluate, faults=(partial(fault_child.no_room, file),))
    assert "what was saved before is untouched" in answer.line
    after = digests(run)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after if Path(name).name.startswith(".")]
    assert child(*evaluate).code == 0
    assert "predictions/ood/gaussian-noise.npz" in digests(run)


@pytest.mark.parametrize("file", ["report.html", "report-tables/*"])
def test_a_report_without_room_leaves_the_old_page(child, finished, tmp_path, file):
    page = tmp_path / "report.html"
    page.write_text("old")
    report = ("report", finished(), "-o", page)
    answer = child(*report, faults=(partial(fault_child.no_room, file),))
    assert "what was saved before is untouched" in answer.line
    if file == page.name:
        assert page.read_text() == "old"
    assert not list(tmp_path.rglob(".*"))
    assert child(*report).code == 0
    assert page.read_text().endswith("</html>\n")


@pytest.mark.slow
@pytest.mark.parametrize("file", ["results/*/0.json", "results.html"])
def test_a_reproduction_without_room_goes_on_with_what_is_missing(child, tmp_path, digests, file):
    reproduce = ("reproduce", "fgsm", "--only", "dense", "--scale", "smoke", "--seeds", "1")
    reproduce += ("--quiet", "--output", str(tmp_path))
    answer = child(*reproduce, faults=(partial(fault_child.no_room, file),))
    assert answer.code == 2
    assert "freetickets: " in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err
    assert not [name for name in digests(tmp_path) if Path(name).name.startswith(".")]
    assert child(*reproduce).code == 0
    records = [name for name in digests(tmp_path) if name.endswith("/0.json")]
    assert len(records) == 2
