import math
from dataclasses import replace

import pytest

from freetickets.cascade import Cascade
from freetickets.evaluation.results import Adjusted
from freetickets.report.comparison import Comparison, find_reference
from freetickets.report.run import read_run, read_runs
from freetickets.report.sections import make

from .conftest import scores
from .fake_runs import FAKES, shift_of, with_results, write_fake


@pytest.fixture(scope="module")
def comparison(full_runs):
    return Comparison.of(full_runs)


def table_of(section):
    table = getattr(section.body, "body", section.body)
    return [dict(zip(table.header, [cell.text for cell in row], strict=True)) for row in table.rows]


def mixed(comparison, number, **changed):
    """The comparison with some results of one run changed."""
    runs = list(comparison.runs)
    runs[number] = with_results(runs[number], **changed)
    return Comparison(runs, runs[0], comparison.analyses)


def test_the_reference_is_the_dense_model_or_the_first_run(full_runs, refused):
    assert find_reference(full_runs).name == "dense"
    assert find_reference(full_runs[::-1]).name == "dense"
    assert find_reference(full_runs[2:]).name == "dst"
    assert find_reference(full_runs, "edst").name == "edst"
    assert find_reference(full_runs, f"{full_runs[3].folder}/../edst").name == "edst"
    words = "not one of the runs: give one of dense, dense-ens"
    refused(words, find_reference, full_runs, "mimo")


def test_differences_are_those_of_the_main_table_in_units_of_cost(comparison, full_runs):
    base = full_runs[0].results.ensemble
    rows = make(comparison, "differences").body.rows
    for run, row in zip(full_runs[1:], rows, strict=True):
        expected = [run.results.ensemble[key] - base[key] for key in ("accuracy", "nll", "ece")]
        assert [row[i].value for i in (1, 5, 9)] == pytest.approx(expected)
    one, other = full_runs[:2]
    ledger = replace(other.ledger, dense_flops=math.nextafter(one.ledger.dense_flops, math.inf))
    section = make(Comparison.of([one, replace(other, ledger=ledger)]), "cost")
    assert "can't be compared" not in section.caption


def test_how_many_members_a_cascade_asks_is_shown_beside_what_all_of_them_say(full_runs):
    adjusted = Adjusted(
        (1, 2, 3), None, None, ensemble=scores(0.85), cascade=Cascade(3, 0.9),
        asked=(60, 30, 10), in_turn=scores(0.84), seconds=(0.0021, 0.004),
    )  # fmt: skip
    run = full_runs[-1]
    (row,) = table_of(make(Comparison.of([with_results(run, adjusted=adjusted)]), "cascade"))
    assert [row[key] for key in ("1", "2", "3", "mean")] == ["60.0%", "30.0%", "10.0%", "1.50"]
    members, all_cost = len(run.results.members), run.ledger.relative_test_flops
    assert row["FLOPs ×"] == f"{1.5 / members * all_cost:.3f}"
    assert row["of all ×"] == f"{3 / members * all_cost:.3f}"
    assert (row["ms"], row["of all, ms"]) == ("2.1", "4")
    older = with_results(run, adjusted=replace(adjusted, seconds=()))
    (row,) = table_of(make(Comparison.of([older]), "cascade"))
    assert row["ms"] == row["of all, ms"] == "–"
    assert make(Comparison.of(full_runs), "cascade") is None


def test_nothing_is_claimed_without_predictions_or_three_runs(runs, comparison, full_runs):
    bare = Comparison.of(runs)
    assert not any(make(bare, it) for it in ("differences", "intervals", "reliability"))
    rows = table_of(make(comparison, "correlations"))
    assert [row["runs"] for row in rows] == ["3", "3", "3"]
    fewer = Comparison(full_runs[:3], full_runs[0], comparison.analyses)
    assert make(fewer, "correlations") is None


def test_runs_that_differ_in_sparsity_only_make_a_curve(tmp_path):
    changes = {"name": "s9", "sparsity": 0.9}, {"name": "s8"}, {"name": "seed", "seed": 1}
    fakes = [replace(FAKES[3], **changed) for changed in changes]
    runs = read_runs([write_fake(tmp_path, fake, 30, rich=False) for fake in fakes])
    assert make(Comparison.of(runs), "sparsity").key == "sparsity"
    assert make(Comparison.of([runs[0], runs[2]]), "sparsity") is None


def test_severities_are_averaged_over_the_types_that_all_runs_have_and_others_left_out(comparison):
    assert "over 19 types" in make(comparison, "severity").caption
    fewer = mixed(comparison, 3, shift=shift_of(comparison.runs[3], types=2))
    assert "over 2 types" in make(fewer, "severity").caption
    few = shift_of(comparison.runs[0], types=1, severities=2)
    section = make(mixed(comparison, 0, shift=few), "severity")
    assert "over 19 types" in section.caption
    assert section.caption.endswith("at other severities: dense.")
    assert "of 3 runs" in section.body.panels[0]


def test_every_corrupted_set_has_its_row_and_its_source_is_told(comparison):
    assert len(table_of(make(comparison, "corruption-scores"))) == 4 * 19 * 5
    rows = table_of(make(comparison, "corruptions"))
    assert {row["samples from"] for row in rows} == {"generated, synthetic frost"}
    assert "synthetic textures" in make(comparison, "corruption-types").caption
    copied = shift_of(comparison.runs[0], source="folder", frost=None, samples=10_000)
    told = "Not all runs saw the same corrupted samples"
    caption = make(mixed(comparison, 0, shift=copied), "main").caption
    assert told in caption
    assert "folder, 10,000 a set or generated, synthetic frost, 200 a set" in caption
    assert told not in make(comparison, "main").caption


def test_attacks_are_told_with_their_size_and_share_no_panel_with_others(comparison, full_runs):
    row = table_of(make(comparison, "attacks"))[3]
    assert (row["run"], row["attack"], row["ε"], row["steps"]) == ("edst", "fgsm", "8/255", "1")
    assert row["mean ↑"] == f"{full_runs[3].results.attacks['fgsm'].mean:.2%}"
    weaker = replace(full_runs[3].results.attacks["fgsm"], epsilon=2 / 255)
    for key in ("attack-fgsm", "transfer-fgsm"):
        panels = make(mixed(comparison, 3, attacks={"fgsm": weaker}), key).body.panels
        found = [("ε 8/255" in panel, "ε 2/255" in panel) for panel in panels]
        assert found == [(True, False), (False, True)]


def test_detection_is_as_measured_and_one_network_has_no_mutual_information(comparison, full_runs):
    rows = make(comparison, "ood").body.rows
    row = next(row for row in rows if (row[0].text, row[1].text) == ("svhn", "edst"))
    found = full_runs[3].results.ood["svhn"].scores.values()
    expected = [number for it in found for number in (it.auroc, it.aupr, it.fpr95)]
    assert [cell.value for cell in row[3:]] == expected
    alone = Comparison.of(full_runs[:1])
    assert make(alone, "transfer-fgsm") is None
    for row in make(alone, "ood").body.rows:
        assert [cell.text for cell in row[-3:]] == ["–"] * 3
        assert all(cell.value is not None for cell in row[2:-3])


def test_natural_shifts_are_shown_in_both_ways(write_run):
    ways = {"1000-way": scores(0.01, 8.0, 0.4), "200-way": scores(0.04, 5.0, 0.3)}
    run = read_run(write_run(metrics={"natural": {"imagenet-a": ways}}))
    comparison = Comparison.of([run])
    shown = [(row["classes"], row["Acc ↑"]) for row in table_of(make(comparison, "natural"))]
    assert shown == [("1000-way", "1.00%"), ("200-way", "4.00%")]
    section = make(comparison, "main")
    assert "aAcc ↑" in section.body.header
    assert "ImageNet-A" in section.caption


@pytest.mark.parametrize(
    ("epsilon", "steps", "told"), [(math.nan, None, ("–", "–")), (0.1, 7, ("0.1", "7"))]
)
def test_the_size_of_an_attack_is_told_as_far_as_it_is_known(comparison, epsilon, steps, told):
    dst = comparison.runs[3]
    changed = replace(dst.results.attacks["fgsm"], epsilon=epsilon, steps=steps)
    run = with_results(dst, attacks={"fgsm": changed})
    alone = Comparison([run], run, comparison.analyses)
    (row,) = table_of(make(alone, "attacks"))
    assert (row["ε"], row["steps"]) == told
    assert make(alone, "attack-fgsm") is not None


def test_files_beside_a_trajectory_are_none(comparison, full_runs, tmp_path):
    (tmp_path / "trajectory").mkdir()
    (tmp_path / "trajectory" / "notes.npz").write_bytes(b"")
    run = replace(full_runs[3], folder=tmp_path)
    assert make(Comparison([run], run, {}), "trajectories") is None
