from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from freetickets.errors import FreeTicketsError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where valid folders of each kind lie, made when they are first needed."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture
def refused() -> Callable[..., None]:
    """Checks that loading fails with one line, and asks for no more than 64 MB before."""

    def check(load: Callable[..., Any], *arguments: Any, match: str) -> None:
        tracemalloc.start()
        try:
            with pytest.raises(FreeTicketsError, match=match) as caught:
                load(*arguments)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
        assert "\n" not in str(caught.value)

    return check
