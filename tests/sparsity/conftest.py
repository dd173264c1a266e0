from __future__ import annotations

import pytest

from freetickets.kernels.library import available


@pytest.fixture(params=["masked", "sparse"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each way to hold a weight to its topology, for promises that both must keep.

    A test that looks at how weights are held (a parameter with zeros, and its dense gradient) asks
    for backend="masked" itself: a sparse layer has neither.
    """
    if request.param == "sparse" and not available():
        pytest.skip("the sparse kernels are not built")
    return str(request.param)
