import pytest

from freetickets.bench.timing import Settings


@pytest.fixture
def tiny():
    """Settings with which anything is measured at once."""
    return Settings(repeats=1, threads=1, small=True)
