import pytest
import torch

from freetickets.errors import FreeTicketsError
from freetickets.kernels import adopted, blocks, groups, library, linear, norm, ops, pool


@pytest.fixture(autouse=True, scope="session")
def _built():
    if not library.available():
        pytest.skip("the sparse kernels are not built")


@pytest.fixture(scope="module", params=["baseline", "avx2", "avx512"])
def instructions(request):
    """Each instruction set that this machine has, in its turn."""
    before = library.instruction_set()
    try:
        library.select_instruction_set(request.param)
    except FreeTicketsError as error:
        pytest.skip(str(error))
    yield request.param
    library.select_instruction_set(before)


@pytest.fixture
def threads():
    """Sets the number of PyTorch's threads, for this test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def same_bits(threads):
    """Checks that a function returns the same bits on any number of threads."""

    def check(work):
        results = []
        for count in (1, 2, 3):
            threads(count)
            results.append(work())
        for other in results[1:]:
            assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))

    return check


@pytest.fixture
def noted(monkeypatch):
    """The kernels that are called in this test, and with what."""
    calls: list[tuple[str, tuple[object, ...]]] = []
    real = library.call

    def call(function, *arguments):
        calls.append((function, arguments))
        real(function, *arguments)

    for module in (adopted, blocks, groups, library, linear, norm, ops, pool):
        monkeypatch.setattr(module, "call", call)
    return calls


@pytest.fixture(scope="module")
def memory_of_nan():
    """New memory is full of NaN: a result that was not written shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="session")
def error():
    """The largest difference of two tensors over the largest value; NaN if one is in them."""

    def relative(found, expected):
        assert found.shape == expected.shape
        if expected.numel() == 0:
            return 0.0
        found, expected = found.detach().double(), expected.detach().double()
        return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))

    return relative
