"""metrics.json as typed values: what is written is what is read, and each number has a name."""

import json
from pathlib import Path

import numpy as np
import pytest

import freetickets as ft
from freetickets.errors import DamagedFileError
from freetickets.evaluation import Request, evaluate_run, results
from freetickets.evaluation.results import CorruptionSet, Evaluation, Shift, choose_corruptions
from freetickets.reading import read_json
from freetickets.storage import write_json
from freetickets.tasks import Score

RECORDS = sorted(Path(__file__).parents[2].glob("results/*/results/*/*.json"))
SCORES = {"accuracy": 0.9, "nll": 0.3, "ece": 0.05}
FIVE = (1, 2, 3, 4, 5)
PAIRS = dict.fromkeys(("disagreement", "kl", "kl_one_way"), 0.1)
PAIRS |= {"disagreement_matrix": [[0]], "kl_matrix": [[0]]}
ATTACK = {"epsilon": 0.1, "samples": 9, "clean": 0.9, "min": 0.1, "mean": 0.2, "max": 0.3}
ATTACK |= {"transfer": [[0.1]]}


def shift(*sets, types=("fog",), severities=FIVE):
    grid = np.full((len(types), len(severities)), 0.5)
    means = {name: {**SCORES, "ece_pooled": 0.1 * n} for n, name in enumerate(sets)}
    return Shift("folder", 9, types, severities, dict.fromkeys(SCORES, grid), means)


def scored_on(**shifts):
    given = {f"{name}-c": each for name, each in shifts.items()}
    return Evaluation("toy.npz", 9, (SCORES,), SCORES, SCORES, shift=given)


@pytest.fixture
def metrics_json(run_folder, tmp_path):
    request = Request(
        corruptions=("fog", "snow"), ood=("gaussian-noise",), attacks=("fgsm",), features=True
    )
    evaluate_run(run_folder, ft.load(run_folder), str(tmp_path), request=request)
    return run_folder / "metrics.json"


def test_what_is_written_is_read_and_each_number_has_a_name(metrics_json):
    found, values = Evaluation.load(metrics_json), read_json(metrics_json)
    assert found.as_dict() == values
    found.save(metrics_json)
    assert read_json(metrics_json) == values
    assert found.value("accuracy") == values["ensemble"]["accuracy"]
    assert found.value("member_nll") == values["member_mean"]["nll"]
    assert found.value("brier") == values["more"]["brier"]
    means = values["shift"]["bars-c"]["means"]["given"]
    assert [found.value(f"c_{key}") for key in means] == list(means.values())
    assert found.value("diversity.kl") == values["diversity"]["kl"]
    by_class = values["diversity"]["disagreement_by_class"]
    assert found.value("diversity.disagreement_by_class.2") == by_class[2]
    noise = values["ood"]["gaussian-noise"]
    assert found.value("ood.gaussian-noise.auroc") == noise["max_probability"]["auroc"]
    assert found.value("ood.gaussian-noise.entropy.fpr95") == noise["entropy"]["fpr95"]
    assert found.value("attacks.fgsm.min") == values["attacks"]["fgsm"]["min"]


def test_what_was_not_measured_or_is_null_is_none_also_in_files_from_before(monkeypatch):
    for column in (
        "brier", "c_nll", "a_accuracy", "member_brier", "diversity.kl", "ood.svhn.auroc", "nothing",
        "attacks.fgsm.min", "diversity.disagreement_by_class.7", "natural.imagenet-a.200-way.nll",
        "task.name", "members.0", "members.9", "x.y", "shift.__class__",
    ):  # fmt: skip
        assert Evaluation("toy", 9, (SCORES,), SCORES, SCORES).value(column) is None
    values = {
        **scored_on(toy=shift("all19")).as_dict(),
        "ensemble": {**SCORES, "nll": None},
        "natural": {"imagenet-a": {"200-way": SCORES}},
    }
    found = Evaluation.of(values)
    assert found.value("nll") is None
    assert (found.value("a_nll"), found.value("c_nll")) == (0.3, 0.3)
    assert found.as_dict() == values
    assert Evaluation.of({**values, "weather": {"sun": 1}}).as_dict() == values  # a later one
    old = scored_on(toy=shift("all19")).as_dict()
    more = (*results.MAIN_SCORES, Score("brier", "Brier", function=ft.metrics.brier))
    monkeypatch.setattr(results, "MAIN_SCORES", more)
    found = Evaluation.of(old)
    assert (found.value("brier"), found.value("c_brier"), found.value("nll")) == (None, None, 0.3)
    assert np.isnan([found.ensemble["brier"], found.members[0]["brier"]]).all()
    new = Evaluation.of({**old, "ensemble": {**SCORES, "brier": 0.2}})
    assert new.value("brier") == 0.2


@pytest.mark.skipif(not RECORDS, reason="the records are not in this copy")
def test_every_record_of_the_results_is_read_and_says_the_same():
    for path in RECORDS:
        values = json.loads(path.read_text())["metrics"]
        found = Evaluation.of(values)
        assert found.as_dict() == values, path
        assert found.value("accuracy") == values["ensemble"]["accuracy"]
        for shifted in values.get("shift", {}).values():
            assert found.value("c_nll") == shifted["means"]["all19"]["nll"]


def test_means_are_over_the_set_that_most_were_tested_on_a_runs_own_before_any_other():
    every, few = scored_on(toy=shift("all19", "common15")), scored_on(toy=shift("common15"))
    assert choose_corruptions([every, every, few]) == CorruptionSet("common15", FIVE)
    assert choose_corruptions([every, every]) == CorruptionSet("all19", FIVE)  # the best known
    assert choose_corruptions([scored_on()]) is None
    chosen = CorruptionSet("all19", FIVE)
    assert every.value("c_ece_pooled", chosen) == 0
    assert few.value("c_ece_pooled", chosen) is None
    assert few.value("c_ece_pooled") == 0  # of its own
    assert every.value("c_nll", CorruptionSet("all19", (1,))) is None  # other severities
    given = [scored_on(toy=shift("given", types=types)) for types in (("fog",), ("snow",))]
    first = choose_corruptions(given)
    assert first == CorruptionSet("given", FIVE, ("fog",))
    assert [each.value("c_nll", first) for each in given] == [0.3, None]
    own, other = shift("all19"), shift("common15")
    assert scored_on(else_=other, toy=own).corrupted is own
    assert scored_on(else_=other).corrupted is other


def remove(values, key):
    return {name: value for name, value in values.items() if name != key}


def test_a_damaged_file_is_one_line_that_names_it(refused, tmp_path):
    path = tmp_path / "metrics.json"
    for change, reason in (
        (lambda v: remove(v, "ensemble"), "it lacks ensemble"),
        (lambda v: {**v, "members": []}, "members must name a member"),
        (lambda v: {**v, "ensemble": remove(SCORES, "nll")}, "has no nll"),
        (lambda v: {**v, "member_mean": {**SCORES, "ece": 1.5}}, r"ece can't be 1\.5"),
        (lambda v: {**v, "samples": -1}, "samples must be at least 0"),
        (lambda v: {**v, "natural": {"a": {"b": {}}}}, "natural.a.b has no accuracy"),
        (lambda v: {**v, "ood": {"noise": {}}}, "ood.noise lacks samples"),
        (lambda v: {**v, "shift": {"c": 1}}, "shift.c it must be a map"),
        (lambda v: {**v, "more": [1]}, "more must be a map"),
        (lambda v: {**v, "more": {"brier": "low"}}, "more.brier must be a number"),
        (lambda v: {**v, "diversity": {**PAIRS, "kl_matrix": [[1, 2], [3]]}}, "of one length"),
        (lambda v: {**v, "diversity": {**PAIRS, "kl_matrix": [[1, 2, 3]]}}, "as many rows as"),
        (lambda v: {**v, "attacks": {"fgsm": {**ATTACK, "transfer": []}}}, "of one length"),
        (lambda v: {**v, "attacks": {"fgsm": {**ATTACK, "max": 1.5}}}, "max must be a share"),
        (lambda v: {**v, "features": [{"layer": "conv"}]}, r"features\[0\] lacks kl"),
        (lambda v: {**v, "layers": [{"name": "conv", "density": []}]}, "must name a ticket"),
        (lambda v: _in_shift(v, types=3), "types must be a list"),
        (lambda v: _in_shift(v, types=["fog", "snow"]), r"accuracy is of the shape \(1, 5\)"),
        (lambda v: _in_shift(v, nll=[[1, 2], [3]]), "must have rows of one length"),
        (lambda v: {**v, "shift": {"c": remove(v["shift"]["toy-c"], "ece")}}, "lacks ece"),
    ):
        write_json(path, change(scored_on(toy=shift("all19")).as_dict()))
        error = refused(rf"metrics.json is damaged \(.*{reason}", Evaluation.load, path)
        assert isinstance(error, DamagedFileError)


def _in_shift(values, **changes):
    return {**values, "shift": {"toy-c": {**values["shift"]["toy-c"], **changes}}}
