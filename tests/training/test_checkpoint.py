import pytest
import torch

from freetickets.errors import DamagedFileError
from freetickets.storage import save_tree
from freetickets.training.checkpoint import Checkpoints


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def checkpoints(tmp_path, warnings):
    return Checkpoints(tmp_path / "checkpoint", warnings.append)


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def test_without_any_checkpoint_there_is_nothing_to_load(checkpoints, tmp_path):
    assert checkpoints.load() is None
    assert not (tmp_path / "checkpoint").exists()


def test_the_newest_two_are_kept_and_the_newest_is_loaded(checkpoints, tmp_path, warnings):
    for step in range(1, 13):
        checkpoints.save({"step": step, "weight": torch.full((3,), step)})
    assert files(tmp_path / "checkpoint") == ["000011.safetensors", "000012.safetensors"]
    loaded = checkpoints.load()
    assert loaded["step"] == 12
    assert loaded["weight"].tolist() == [12, 12, 12]
    assert not warnings


@pytest.mark.parametrize("damage", [b"", b"half of it", None])
def test_a_damaged_newest_one_is_passed_over_with_one_warning(
    checkpoints, tmp_path, warnings, damage
):
    for step in (1, 2, 3):
        checkpoints.save({"step": step})
    newest = tmp_path / "checkpoint" / "000003.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?" if damage is None else damage)
    assert checkpoints.load() == {"step": 2}
    assert len(warnings) == 1
    assert "000003.safetensors is damaged" in warnings[0]
    assert "\n" not in warnings[0]


def test_a_newest_one_of_another_kind_is_passed_over(checkpoints, tmp_path, warnings):
    checkpoints.save({"step": 1})
    save_tree(tmp_path / "checkpoint" / "000002.safetensors", {"step": 2}, "something-else")
    assert checkpoints.load() == {"step": 1}
    assert len(warnings) == 1


def test_after_going_back_new_checkpoints_are_newer_than_the_damaged_one(checkpoints, tmp_path):
    for step in (1, 2):
        checkpoints.save({"step": step})
    (tmp_path / "checkpoint" / "000002.safetensors").write_bytes(b"")
    checkpoints.load()
    checkpoints.save({"step": 5})
    assert checkpoints.load() == {"step": 5}


def test_all_damaged_is_an_error_that_says_what_to_do(checkpoints, tmp_path):
    for step in (1, 2):
        checkpoints.save({"step": step})
    for file in (tmp_path / "checkpoint").iterdir():
        file.write_bytes(b"")
    with pytest.raises(DamagedFileError, match=r"no checkpoint in .* delete that folder"):
        checkpoints.load()


def test_what_a_kill_left_is_ignored_and_cleaned_and_other_files_are_not(
    checkpoints, tmp_path, warnings
):
    checkpoints.save({"step": 1})
    folder = tmp_path / "checkpoint"
    (folder / ".000002.safetensors.k2j9").write_bytes(b"half")  # killed while it wrote the second
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / "notes.safetensors").write_bytes(b"a user's")
    assert checkpoints.load() == {"step": 1}
    assert not warnings
    checkpoints.save({"step": 2})
    checkpoints.save({"step": 3})
    assert files(folder) == [
        ".ipynb_checkpoints",
        "000002.safetensors",
        "000003.safetensors",
        "notes.safetensors",
    ]
