"""The tool that kills real processes, with few kills."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest

from freetickets.kernels.library import available

TOOL = Path(__file__).parents[2] / "tools" / "kill_and_resume.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kill_and_resume", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_training_killed_twice_ends_with_the_same_tickets(
    tool: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", "mlp-8", "--epochs", "5", "--tickets", "2", "--interval", "20"]
    flags += ["--backend", "sparse" if available() else "masked"]
    assert tool.compare(tmp_path, "edst", flags, 2, random.Random(0)) == 0
    out, err = capfd.readouterr()
    first, second, summary = out.splitlines()
    assert first.startswith("kill 1: saved in run 1 at step ")
    assert second.startswith("kill 2: saved in run 1 at step ")
    assert summary == "2 kills, 2 tickets identical"
    assert err == ""


def test_the_tool_tells_when_tickets_differ(
    tool: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, content in [("peaceful", b"a"), ("killed", b"b")]:
        (tmp_path / name / "tickets").mkdir(parents=True)
        (tmp_path / name / "tickets" / "01.safetensors").write_bytes(content)
        (tmp_path / name / "ledger.json").write_text('{"phases": [], "runs": 1}')

    class Done:
        def wait(self) -> int:
            return 0

    monkeypatch.setattr(tool, "start", lambda *_: Done())
    assert tool.compare(tmp_path, "edst", [], 0, random.Random(0)) == 1
    assert capfd.readouterr().out == "0 kills, 0 tickets identical, 1 not\n"
