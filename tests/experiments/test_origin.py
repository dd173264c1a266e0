"""A record says which code and which machine made it, and nothing that nobody knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import torch

from freetickets.experiments.provenance import COMMIT_FILE, UNKNOWN, commit, origin
from freetickets.storage import write_json


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_checkout_knows_its_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "code.py").write_text("1")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit.__wrapped__(package) == head
    (tmp_path / "notes").write_text("beside the code")
    assert commit.__wrapped__(package) == head
    (package / "code.py").write_text("2")
    assert commit.__wrapped__(package) == head + "+"


def test_an_installation_says_what_was_written_into_it(tmp_path: Path) -> None:
    assert commit.__wrapped__(tmp_path) == UNKNOWN
    (tmp_path / COMMIT_FILE).write_text("abc\n")
    assert commit.__wrapped__(tmp_path) == "abc"


def test_sources_without_a_history_say_so(tmp_path: Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    assert commit.__wrapped__(package) == UNKNOWN


def test_the_machine_and_the_kernels_are_told(tmp_path: Path) -> None:
    found = origin(tmp_path)
    assert found["torch"] == torch.__version__
    assert found["threads"] == torch.get_num_threads()
    assert {"version", "commit", "cpu", "kernels"} <= set(found)
    assert found["choices"] == {}
    write_json(tmp_path / "choices.json", {"ways": {"conv": "sparse"}, "settings": "abc"})
    assert origin(tmp_path)["choices"] == {"ways": {"conv": "sparse"}}
