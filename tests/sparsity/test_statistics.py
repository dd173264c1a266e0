import pytest
import torch

from freetickets.sparsity import Exploration, LayerStatistics
from freetickets.sparsity.network import itop_rate, overall_sparsity, table

from .training import Run

ROWS = [
    LayerStatistics("conv1.weight", (2, 1, 5, 5), 50, 50, 50),
    LayerStatistics("a.long.name.of.a.layer.weight", (1000, 20), 20_000, 1_234, 5_000),
]


def test_rates_are_over_all_weights_together():
    assert overall_sparsity(ROWS) == 1 - 1284 / 20_050
    assert itop_rate(ROWS) == 5050 / 20_050
    assert [row.sparsity for row in ROWS] == [0, 1 - 1234 / 20_000]


def test_the_table_lines_up_and_shows_every_number():
    lines = table(ROWS).splitlines()
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[1].split() == ["conv1.weight", "2x1x5x5", "50", "0.0000", "1.000"]
    assert lines[2].split()[1:] == ["1000x20", "1,234", "0.9383", "0.250"]
    assert lines[3] == "sparsity 0.9360, ITOP rate 0.2519"


def test_a_sparsifier_reports_its_layers_in_the_networks_order(backend):
    run = Run(sparsity=0.8, backend=backend, distribution="erk")
    rows = run.sparsifier.statistics()
    assert [row.name for row in rows] == ["0.weight", "2.weight", "4.weight"]
    for row in rows:
        weight = run.weight(row.name)
        assert row.shape == tuple(weight.shape)
        assert row.nonzeros == row.ever_active == (weight != 0).sum()
    assert sum(row.nonzeros for row in rows) == round(0.2 * sum(row.weights for row in rows))
    assert run.sparsifier.sparsity == overall_sparsity(rows)
    assert str(run.sparsifier) == table(rows)


def test_the_itop_rate_is_the_union_of_all_topologies():
    run = Run(sparsity=0.9, backend="auto", exploration=Exploration(0.5, interval=1))
    union = {name: torch.zeros(shape, dtype=torch.bool) for name, shape in run.shapes.items()}
    rates = []
    for step in range(15):
        for name, mask in run.sparsifier.topology.items():
            union[name] |= mask
        fired = [int(mask.sum()) for mask in union.values()]
        rates.append(run.sparsifier.itop_rate)
        assert rates[-1] == pytest.approx(sum(fired) / 828)
        assert [row.ever_active for row in run.sparsifier.statistics()] == fired
        run.train([step])
    assert rates[0] == pytest.approx(0.1, abs=1e-3)
    assert rates == sorted(rates)
    assert rates[-1] > 0.25
