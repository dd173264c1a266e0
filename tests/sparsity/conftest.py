import pytest

from freetickets.kernels.library import available


@pytest.fixture(params=["masked", "sparse", "auto"])
def backend(request):
    """Each way to hold a weight to its topology, for promises that all must keep.

    A test that looks at how weights are held (a parameter with zeros, and its dense gradient) asks
    for backend="masked" itself: a compressed layer has neither.
    """
    if request.param != "masked":
        if not available():
            pytest.skip("the sparse kernels are not built")
        request.getfixturevalue("skipping_zeros")
    return str(request.param)
