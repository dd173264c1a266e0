"""Networks that answer side by side say the same bits as one after the other."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from freetickets.kernels import team
from freetickets.kernels.inference import LazilyCompiled
from freetickets.kernels.library import available
from freetickets.kernels.team import answer_all
from freetickets.models import create_model

from .zoo.checks import compiled_for_good, make_sparse

SHAPE = (3, 8, 8)
pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built")


@pytest.fixture
def networks():
    torch.manual_seed(0)
    made = [create_model("wrn-10-1", SHAPE, 10).eval() for _ in range(5)]
    for network in made:
        make_sparse(network)
    return [LazilyCompiled(network, at_once=True) for network in made]


@pytest.fixture
def submitted(monkeypatch):
    """How many networks were given to threads, each time."""
    found, real = [], ThreadPoolExecutor.map

    def spy(self, function, networks):
        found.append(len(networks))
        return real(self, function, networks)

    monkeypatch.setattr(ThreadPoolExecutor, "map", spy)
    return found


@pytest.mark.parametrize(("count", "cores", "together"), [(3, 2, 2), (5, 2, 4), (3, 8, 3)])
@torch.no_grad()
def test_few_samples_are_answered_side_by_side_with_the_same_bits(
    networks, threads, submitted, count, cores, together
):
    threads(cores)
    with compiled_for_good(lambda _: "sparse"):
        for samples in (1, 4, 5):
            x = torch.randn(samples, *SHAPE)
            alone = [network(x) for network in networks[:count]]
            submitted.clear()
            for _ in range(3):
                found = answer_all(networks[:count], x)
                assert all(map(torch.equal, found, alone))
            assert submitted == ([] if samples == 5 else [together] * 3)
    assert torch.get_num_threads() == cores
    with ThreadPoolExecutor(1) as pool:  # what is started later has as many as ever
        assert pool.submit(torch.get_num_threads).result() == cores


@torch.no_grad()
def test_networks_that_are_not_compiled_yet_and_one_thread_go_one_after_the_other(
    networks, threads, submitted, monkeypatch
):
    x = torch.randn(1, *SHAPE)
    threads(2)
    with compiled_for_good(lambda _: "sparse"):
        answer_all(networks, x)
        answer_all([*networks, torch.nn.Flatten()], x)
        threads(1)
        answer_all(networks, x)
        threads(2)
        monkeypatch.setattr(team, "_pool", lambda *_: None)
        answer_all(networks, x)
    assert submitted == []
