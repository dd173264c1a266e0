"""Tables: measured beside the paper, what stood for its data, verdicts on its claims."""

import statistics

import pytest

from freetickets.experiments import CLAIMS, Results, experiment_names, load
from freetickets.experiments.claims import judge
from freetickets.experiments.experiment import title_of_data
from freetickets.experiments.findings import SIGNS
from freetickets.experiments.grid import find_grid
from freetickets.experiments.tables import (
    footnotes,
    measured_table,
    substitutes_table,
    verdict_table,
)

from .invented import invent_results, results_of

MAIN = load("cifar10")
SOME = [MAIN, load("diversity"), load("fgsm")]


def nothing(cell, seed):
    """No number of a cell is special."""
    return {}


def test_a_cell_shows_mean_deviation_and_the_papers_number():
    row, values = MAIN.rows[3], [0.961, 0.964, 0.959]
    given = {(row.cells[0], seed): {"accuracy": value} for seed, value in enumerate(values)}
    shown = measured_table(MAIN, results_of(given)).rows[3]
    assert shown[1].text == "3"
    percent = [100 * value for value in values]
    mean, deviation = statistics.fmean(percent), statistics.stdev(percent)
    assert shown[2].text.split() == [f"{mean:.2f}", "±", f"{deviation:.2f}", "[96.3]"]
    assert shown[2].value == pytest.approx(statistics.fmean(values))
    assert shown[2].html().endswith(f"{deviation:.2f}<small>[96.3]</small></td>")
    # One seed has no deviation, and none a dash.
    shown = measured_table(MAIN, results_of({(row.cells[0], 0): {"accuracy": values[0]}}))
    assert shown.rows[3][2].text == "96.10 [96.3]"
    assert [cell.text for cell in shown.rows[0][1:3]] == ["not run yet", "– [96.0]"]
    assert shown.is_numeric(2)  # a number of the paper makes no words of a dash


def test_corrections_and_underivable_numbers_are_marked_and_explained():
    escape_rate = load("escape-rate")
    texts = [cell.text for row in measured_table(escape_rate, Results()).rows for cell in row]
    assert "– [0.223†]" in texts
    assert any("printed 2.223, taken 0.223" in note for note in footnotes(escape_rate, Results()))
    texts = [cell.text for row in measured_table(MAIN, Results()).rows for cell in row]
    assert "– [1.10‡]" in texts
    (ours,) = (note for note in footnotes(MAIN, Results()) if "BatchEnsemble" in note)
    assert ours.startswith("‡")
    (headings,) = (note for note in footnotes(load("classes"), Results()) if note.startswith("†"))
    assert 'aquarium fish (printed "Aquarium")' in headings


def test_the_stands_say_what_was_really_used_and_what_it_took():
    results = invent_results(SOME, nothing, (1, 2))
    rows = substitutes_table(SOME, results).rows
    texts = [cell.text for cell in rows[0][:4]]
    assert texts == ["CIFAR-10", "wrn-28-10", "fashion-mini", "mlp-16"]
    runs = [record for record in results.records.values() if record["dataset"] == "cifar10"]
    assert rows[0][5].value == len(runs)
    assert rows[0][6].value == pytest.approx(10 * len(runs) / 3600)


def test_the_seeds_are_those_that_a_table_has_numbers_of():
    table = load("ood-cifar10")
    results = invent_results([table], nothing, (1, 2, 3))
    for (_, seed), record in results.records.items():
        if seed > 1:  # the further sets are predicted by the first run only
            record["metrics"]["ood"] = {}
            for first in record["first"].values():
                first["ood"] = {}
    assert {row[1].text for row in measured_table(table, results).rows} == {"1"}
    assert {row[1].text for row in measured_table(MAIN, results).rows if row[1].value} == {"3"}


def test_classes_of_other_data_are_said_to_be_others():
    tables = [load(name) for name in experiment_names()]
    results = invent_results(tables, nothing, (1, 2))
    for data, expected in (("fashion-mini: pooled 2x2", ["classes"]), ("cifar100", [])):
        for record in results.records.values():
            record["data"] = data
        notes = [(table.name, note) for table in tables for note in footnotes(table, results)]
        found = [each for each in notes if "with the same numbers" in each[1]]
        assert [name for name, _ in found] == expected
        assert all("cifar100" in note and data in note for _, note in found)


def test_every_verdict_stands_in_the_row_of_its_claim_and_the_column_of_its_data():
    tables = [load(name) for name in experiment_names()]
    results = invent_results(tables, nothing, (1, 2))
    found = judge(tables, results)
    shown = verdict_table(found)
    says = [claim.says for claim in CLAIMS.values()]
    assert [row[0].text for row in shown.rows] == says
    lines = [cell.text for row in shown.rows for cell in row[1:] if cell.text]
    assert len(lines) == len(found)  # each once, however many tables bear on it
    for verdict in found:
        row = shown.rows[says.index(verdict.claim.says)]
        cell = row[list(shown.header).index(title_of_data(verdict.dataset))]
        outcome = f"{SIGNS[verdict.outcome]} {verdict.outcome}".replace(" ", "\xa0")
        assert cell.text == f"{outcome} ({'; '.join(verdict.where)})"


def test_effects_stand_below_their_verdict_each_with_its_own_sign():
    results = invent_results([MAIN], lambda cell, seed: {"nll": 0.2 + 0.01 * seed}, (1, 2))
    (verdict, *_) = judge([MAIN], results)
    table = verdict_table([verdict], effects=True)
    lines = table.rows[0][1].text.split("\n")
    assert "supported" in lines[0] or "undecided" in lines[0]
    assert len([line for line in lines if line[0] in SIGNS.values()]) == 1 + len(verdict.findings)
    assert table.row_groups == [("the paper's question", 1)]
    nothing = verdict_table(judge([MAIN], Results())[:1], effects=True)
    assert nothing.rows[0][1].text == "not run yet"


def test_a_stage_shows_the_rows_that_it_is_compared_with():
    stages = {stage.name: stage for stage in find_grid("medium").experiments}
    shown = measured_table(stages["t2"], Results())
    assert [title for title, _ in shown.row_groups] == [
        "CIFAR-10, few images",
        "CIFAR-100, few images",
    ]
    first = [row[0].text.partition(" (M")[0] for row in shown.rows]
    assert first == ["Dense", "Dense Ensemble", "DST", "Static"] * 2
    assert not any("AUROC" in title for title in shown.header)  # no set was had
