import torch
from torch import nn

from freetickets.sparsity import Exploration, LayerStatistics, Sparsifier
from freetickets.sparsity.statistics import itop_rate, overall_sparsity, table

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
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 60), nn.Linear(60, 60), nn.Linear(60, 2))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    sparsifier = Sparsifier(network, optimizer, 0.8, backend=backend)
    rows = sparsifier.statistics()
    assert [row.name for row in rows] == ["0.weight", "1.weight", "2.weight", "3.weight"]
    assert rows[0] == LayerStatistics("0.weight", (3, 4), 12, 12, 12)  # dense by ERK
    assert "0.weight" not in sparsifier.topology
    for row in rows:
        weight = network.state_dict()[row.name]
        assert row.shape == tuple(weight.shape)
        assert row.nonzeros == (weight != 0).sum()
    total = sum(row.weights for row in rows)
    assert sum(row.nonzeros for row in rows) == round(0.2 * total)
    assert sparsifier.sparsity == overall_sparsity(rows)
    assert str(sparsifier) == table(rows)


def test_the_itop_rate_is_the_union_of_all_topologies():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 30), nn.Linear(30, 10))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    sparsifier = Sparsifier(
        network, optimizer, 0.9, distribution="uniform", exploration=Exploration(0.3, interval=1)
    )
    union = [set(), set()]
    rates = []
    for step in range(15):
        for layer, mask in enumerate(sparsifier.topology.values()):
            union[layer] |= {tuple(entry) for entry in mask.nonzero().tolist()}
        rates.append(sparsifier.itop_rate)
        assert rates[-1] == sum(map(len, union)) / 900, step
        assert [row.ever_active for row in sparsifier.statistics()] == [*map(len, union)]
        network(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
        sparsifier.step()
        optimizer.zero_grad()
    assert rates[0] == 0.1
    assert rates == sorted(rates)
    assert rates[-1] > 0.25
