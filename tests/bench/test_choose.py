from dataclasses import replace

import pytest

from freetickets.bench import choose
from freetickets.bench.timing import Ratio, Timing, compare
from freetickets.kernels import choice
from freetickets.kernels.choice import COSTS
from freetickets.kernels.library import available, instruction_set

pytestmark = pytest.mark.skipif(not available(), reason="the kernels are not built")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    choice._basis.cache_clear()
    return tmp_path / "freetickets" / "costs.json"


def test_tiny_layers_are_measured_and_nothing_is_kept(tiny, cache):
    results = list(choose.costs(tiny))
    rows = [result for result in results if isinstance(result, Ratio)]
    assert len(rows) == 6
    assert all(row.value > 0 and list(row.seconds) == ["measured", "as shipped"] for row in rows)
    assert results[-1] == "nothing is kept of tiny layers"
    assert not cache.exists()


def test_equal_costs_change_nothing_and_a_second_for_all_is_so_many_constants(tiny, monkeypatch):
    monkeypatch.setattr(
        choose, "interleave", lambda sides, *_, **__: {side: Timing(1.0, 1.0) for side in sides}
    )
    only = COSTS["avx2"]._replace(weight=(1.0, 2.0), visit=(0.0, 0.0), visit_of=(0.0, 0.0))
    found = choose._measure("skipping zeros", only, tiny)
    positions, weights = 8 * 8 * 32, 8 * 8 * 9
    products = positions * (round(0.1 * weights) * round(0.3 * weights)) ** 0.5
    assert compare("", found[0]).value == pytest.approx(1e9 / products)
    assert compare("", found[1]).value == pytest.approx(1e9 / products / 2)
    for costs in COSTS.values():
        factors = {(way, kind): 1.0 for way in choose._WAYS for kind in (0, 1)}
        assert choose.scaled(costs, factors) == costs
        assert list(choose.changes(costs, costs)) == []


def test_what_was_measured_is_kept_and_used_if_asked_for(tiny, cache, monkeypatch):
    def measure(way, shipped, settings):
        factor = 10.0 if way == "skipping zeros" else 1.0
        pair = {"measured": Timing(factor, factor), "as shipped": Timing(1.0, 1.0)}
        return {0: pair, 1: pair}

    monkeypatch.setattr(choose, "_measure", measure)
    *results, line = choose.costs(replace(tiny, small=False))
    assert [row.value for row in results[:6]] == [10, 10, 1, 1, 1, 1]
    changed = "3x3 160->160 @ 32x32, batch 64, density 0.1: "
    changed += "Winograd / Winograd / Winograd, not sparse / sparse / sparse"
    assert changed in results[6:]
    assert line == f"kept in {cache}; used if FREETICKETS_COSTS=measured is set"
    shipped = choice.shipped_costs(instruction_set())
    assert choice.basis().costs == shipped
    monkeypatch.setenv("FREETICKETS_COSTS", "measured")
    found = choice.basis().costs
    assert found.weight == pytest.approx([10 * each for each in shipped.weight])
    assert found._replace(weight=shipped.weight, visit=shipped.visit) == shipped._replace(
        visit_of=found.visit_of
    )
