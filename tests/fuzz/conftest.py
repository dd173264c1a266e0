import sys
import tracemalloc
from pathlib import Path

import pytest

from freetickets.errors import FreeTicketsError

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """Where valid folders of each kind lie, made when they are first needed."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture
def refused():
    """Checks that loading fails with one line, and asks for no more than 64 MB before."""

    def check(load, *arguments, match):
        tracemalloc.start()
        try:
            with pytest.raises(FreeTicketsError, match=match) as caught:
                load(*arguments)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()
        assert "\n" not in str(caught.value)

    return check
