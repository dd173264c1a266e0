from __future__ import annotations

import re
from pathlib import Path

import pytest

from freetickets import FreeTicketsError
from freetickets.errors import MissingExtraError, StoppedError, UnknownNameError
from freetickets.storage import DamagedFileError


@pytest.mark.parametrize(
    "error",
    [
        UnknownNameError("model", "x", ["a"]),
        MissingExtraError("drawing figures", "report"),
        StoppedError("stopped"),
        DamagedFileError("damaged"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_of_ours_is_caught_by_one_name_and_is_one_line(error: Exception) -> None:
    assert isinstance(error, FreeTicketsError)
    assert str(error)
    assert "\n" not in str(error)


def test_an_unknown_name_offers_the_nearest_or_all() -> None:
    assert str(UnknownNameError("model", "mpl", iter(["mlp", "cnn"]))) == (
        "unknown model 'mpl': did you mean 'mlp'?"
    )
    assert str(UnknownNameError("model", "zzz", ["mlp", "cnn"])) == (
        "unknown model 'zzz': known: mlp, cnn"
    )


def test_a_missing_extra_says_how_to_install_it() -> None:
    assert "pip install 'freetickets[ray]'" in str(MissingExtraError("--launcher ray", "ray"))


def test_every_extra_that_a_user_is_told_to_install_exists() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 can't read pyproject.toml")
    root = Path(__file__).parents[1]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = {
        name
        for file in (root / "src").rglob("*.py")
        for name in re.findall(r'MissingExtraError\("[^"]*", "([^"]*)"\)', file.read_text())
    }
    assert named == {"report", "corruptions", "ray"}
    assert named <= set(extras["optional-dependencies"])
