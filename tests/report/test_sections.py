import math
from dataclasses import replace

import pytest

from freetickets.errors import FreeTicketsError
from freetickets.report import Comparison, find_reference, read_run, read_runs
from freetickets.report.sections import make

from .conftest import scores
from .fake_runs import FAKES, write_fake


@pytest.fixture(scope="module")
def comparison(full_runs):
    return Comparison.of(full_runs)


def made(comparison, key):
    section = make(comparison, key)
    return [] if section is None else [section]


def table_of(sections):
    (section,) = sections
    table = getattr(section.body, "body", section.body)
    return [dict(zip(table.header, [cell.text for cell in row], strict=True)) for row in table.rows]


def values_of(sections):
    (section,) = sections
    table = getattr(section.body, "body", section.body)
    return [[cell.value for cell in row] for row in table.rows]


def test_the_reference_is_the_dense_model_or_the_first_run(full_runs):
    assert find_reference(full_runs).name == "dense"
    assert find_reference(full_runs[::-1]).name == "dense"
    assert find_reference(full_runs[2:]).name == "dst"
    assert find_reference(full_runs, "edst").name == "edst"
    assert find_reference(full_runs, f"{full_runs[3].folder}/../edst").name == "edst"
    with pytest.raises(FreeTicketsError, match="not one of the runs: give one of dense, dense-ens"):
        find_reference(full_runs, "mimo")


def test_differences_are_between_the_rows_of_the_main_table(comparison, full_runs):
    rows = values_of(made(comparison, "differences"))
    for run, row in zip(full_runs[1:], rows, strict=True):
        gaps = [row[1], row[5], row[9]]
        ours, base = run.results.ensemble, full_runs[0].results.ensemble
        expected = [ours[key] - base[key] for key in ("accuracy", "nll", "ece")]
        assert gaps == pytest.approx(expected)


def test_a_unit_of_cost_that_differs_by_rounding_is_one(full_runs):
    one, other = full_runs[:2]
    ledger = replace(other.ledger, dense_flops=math.nextafter(one.ledger.dense_flops, math.inf))
    (section,) = made(Comparison.of([one, replace(other, ledger=ledger)]), "cost")
    assert "can't be compared" not in section.caption


def test_without_predictions_nothing_is_claimed_to_be_sure(runs):
    comparison = Comparison.of(runs)
    assert made(comparison, "differences") == []
    assert made(comparison, "intervals") == []
    assert made(comparison, "reliability") == []


def test_correlations_need_three_runs_of_several_members(comparison, full_runs):
    rows = table_of(made(comparison, "correlations"))
    assert [row["runs"] for row in rows] == ["3", "3", "3"]
    fewer = Comparison(full_runs[:3], full_runs[0], comparison.analyses)
    assert made(fewer, "correlations") == []


def test_runs_that_differ_in_sparsity_only_make_a_curve(tmp_path):
    folders = [
        write_fake(tmp_path, replace(FAKES[3], name=name, sparsity=sparsity), 30, rich=False)
        for name, sparsity in (("s9", 0.9), ("s8", 0.8))
    ]
    other = write_fake(tmp_path, replace(FAKES[3], name="seed", seed=1), 30, rich=False)
    runs = read_runs([*folders, other])
    (section,) = made(Comparison.of(runs), "sparsity")
    assert section.key == "sparsity"
    assert made(Comparison.of([runs[0], runs[2]]), "sparsity") == []


def test_severities_are_averaged_over_the_types_that_all_runs_have(comparison, full_runs):
    shift = full_runs[3].results.shift["cifar10-c"]
    fewer = replace(
        shift,
        types=shift.types[:2],
        scores={key: values[:2] for key, values in shift.scores.items()},
    )
    run = replace(full_runs[3], results=replace(full_runs[3].results, shift={"cifar10-c": fewer}))
    mixed = Comparison([*full_runs[:3], run], full_runs[0], comparison.analyses)
    assert "over 19 types" in made(comparison, "severity")[0].caption
    assert "over 2 types" in made(mixed, "severity")[0].caption


def test_every_corrupted_set_has_its_row(comparison):
    assert len(table_of(made(comparison, "corruption-scores"))) == 4 * 19 * 5


def test_synthetic_frost_is_told(comparison):
    rows = table_of(made(comparison, "corruptions"))
    assert {row["samples from"] for row in rows} == {"generated, synthetic frost"}
    assert "synthetic textures" in made(comparison, "corruption-types")[0].caption


def test_attacks_are_told_with_their_size(comparison, full_runs):
    row = table_of(made(comparison, "attacks"))[3]
    assert (row["run"], row["attack"], row["ε"], row["steps"]) == ("edst", "fgsm", "8/255", "1")
    assert row["mean ↑"] == f"{full_runs[3].results.attacks['fgsm'].mean:.2%}"


def test_one_network_has_no_transfer_and_no_mutual_information(full_runs):
    alone = Comparison.of(full_runs[:1])
    assert made(alone, "transfer-fgsm") == []
    (section,) = made(alone, "ood")
    for row in section.body.rows:
        assert [cell.text for cell in row[-3:]] == ["–"] * 3
        assert all(cell.value is not None for cell in row[2:-3])


def test_detection_is_shown_as_it_was_measured(comparison, full_runs):
    (section,) = made(comparison, "ood")
    row = next(row for row in section.body.rows if (row[0].text, row[1].text) == ("svhn", "edst"))
    measured = full_runs[3].results.ood["svhn"].scores
    shown = [cell.value for cell in row[3:]]
    assert shown == [
        number
        for score in ("max_probability", "entropy", "mutual_information")
        for number in (measured[score].auroc, measured[score].aupr, measured[score].fpr95)
    ]


def test_natural_shifts_are_shown_in_both_ways(write_run):
    ways = {"1000-way": scores(0.01, 8.0, 0.4), "200-way": scores(0.04, 5.0, 0.3)}
    run = read_run(write_run(metrics={"natural": {"imagenet-a": ways}}))
    comparison = Comparison.of([run])
    rows = table_of(made(comparison, "natural"))
    assert [(row["classes"], row["Acc ↑"]) for row in rows] == [
        ("1000-way", "1.00%"),
        ("200-way", "4.00%"),
    ]
    (section,) = made(comparison, "main")
    assert "aAcc ↑" in section.body.header
    assert "ImageNet-A" in section.caption


def with_results(run, **changed):
    return replace(run, results=replace(run.results, **changed))


def test_runs_of_other_severities_are_named_and_left_out(comparison, full_runs):
    shift = full_runs[0].results.shift["cifar10-c"]
    cut = {key: values[:1, :2] for key, values in shift.scores.items()}
    few = replace(shift, types=shift.types[:1], severities=(1, 2), scores=cut)
    run = with_results(full_runs[0], shift={"cifar10-c": few})
    mixed = Comparison([run, *full_runs[1:]], run, comparison.analyses)
    (section,) = made(mixed, "severity")
    assert "over 19 types" in section.caption
    assert section.caption.endswith("at other severities: dense.")
    assert "of 3 runs" in section.body.panels[0]


def test_corrupted_samples_of_other_sources_are_told(comparison, full_runs):
    shift = full_runs[0].results.shift["cifar10-c"]
    copied = replace(shift, source="folder", frost=None, samples=10_000)
    run = with_results(full_runs[0], shift={"cifar10-c": copied})
    mixed = Comparison([run, *full_runs[1:]], run, comparison.analyses)
    told = "Not all runs saw the same corrupted samples"
    caption = made(mixed, "main")[0].caption
    assert told in caption
    assert "folder, 10,000 a set or generated, synthetic frost, 200 a set" in caption
    assert told not in made(comparison, "main")[0].caption


def test_attacks_of_other_sizes_share_no_panel(comparison, full_runs):
    weaker = replace(full_runs[3].results.attacks["fgsm"], epsilon=2 / 255)
    run = with_results(full_runs[3], attacks={"fgsm": weaker})
    mixed = Comparison([*full_runs[:3], run], full_runs[0], comparison.analyses)
    for key in ("attack-fgsm", "transfer-fgsm"):
        panels = made(mixed, key)[0].body.panels
        assert [("ε 8/255" in panel, "ε 2/255" in panel) for panel in panels] == [
            (True, False),
            (False, True),
        ]


def test_an_attack_of_unknown_size_has_a_dash(comparison, full_runs):
    unknown = replace(full_runs[3].results.attacks["fgsm"], epsilon=float("nan"), steps=None)
    run = with_results(full_runs[3], attacks={"fgsm": unknown})
    alone = Comparison([run], run, comparison.analyses)
    (row,) = table_of(made(alone, "attacks"))
    assert (row["ε"], row["steps"]) == ("–", "–")
    assert len(made(alone, "attack-fgsm")) == 1


def test_the_number_behind_the_cost_of_a_phase_is_the_one_that_is_shown(comparison):
    (section,) = made(comparison, "phases")
    column = list(section.body.header).index("FLOPs ×")
    for row in section.body.rows:
        assert row[column].text == f"{row[column].value:.3f}"


def test_files_beside_a_trajectory_are_none(comparison, full_runs, tmp_path):
    (tmp_path / "trajectory").mkdir()
    (tmp_path / "trajectory" / "notes.npz").write_bytes(b"")
    run = replace(full_runs[3], folder=tmp_path)
    assert made(Comparison([run], run, {}), "trajectories") == []
