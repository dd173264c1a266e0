import pytest
import torch

from freetickets.errors import DamagedFileError
from freetickets.storage import save_tree
from freetickets.training.folder import Checkpoints


def test_two_are_kept_and_the_newest_loaded_past_files_of_others(tmp_path):
    warnings, folder = [], tmp_path / "checkpoint"
    checkpoints = Checkpoints(folder, warnings.append)
    assert checkpoints.load() is None
    assert not folder.exists()
    for step in range(1, 13):
        checkpoints.save({"step": step, "weight": torch.full((3,), step)})
    assert sorted(file.name[:6] for file in folder.iterdir()) == ["000011", "000012"]
    (folder / ".000013.safetensors.k2j9").write_bytes(b"half")  # killed while it wrote the next
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / "notes.safetensors").write_bytes(b"a user's")
    loaded = checkpoints.load()
    assert loaded["step"] == 12
    assert loaded["weight"].tolist() == [12, 12, 12]
    checkpoints.save({"step": 13})
    left = {".ipynb_checkpoints", "000012.safetensors", "000013.safetensors", "notes.safetensors"}
    assert {file.name for file in folder.iterdir()} == left
    assert not warnings


@pytest.mark.parametrize("damage", ["empty", "a flipped byte", "another kind"])
def test_a_damaged_newest_one_is_passed_over_and_followed_unless_all_are(refused, tmp_path, damage):
    warnings, folder = [], tmp_path / "checkpoint"
    checkpoints = Checkpoints(folder, warnings.append)
    for step in (1, 2):
        checkpoints.save({"step": step})
    newest = folder / "000002.safetensors"
    if damage == "another kind":
        save_tree(newest, {"step": 2}, "something-else")
    else:
        newest.write_bytes(b"" if damage == "empty" else newest.read_bytes()[:-1] + b"?")
    assert checkpoints.load() == {"step": 1}
    (warning,) = warnings
    assert "000002.safetensors" in warning
    assert "\n" not in warning
    checkpoints.save({"step": 5})
    assert checkpoints.load() == {"step": 5}
    for file in folder.iterdir():
        file.write_bytes(b"")
    error = refused(r"no checkpoint in .* delete that folder", checkpoints.load)
    assert isinstance(error, DamagedFileError)
