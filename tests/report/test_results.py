import math

import numpy as np
import pytest

from freetickets.errors import FreeTicketsError
from freetickets.report import read_run
from freetickets.seal import open_values
from freetickets.storage import write_json

from .fake_runs import ALL19, FAKES, LAYERS, write_fake


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_fake(tmp_path_factory.mktemp("runs"), FAKES[3], samples=100)


@pytest.fixture
def change(folder, tmp_path):
    """Reads the run with one part of metrics.json changed."""
    text = (folder / "metrics.json").read_text()

    def read(path, value):
        content = open_values(text)
        *above, last = path
        place = content
        for key in above:
            place = place[key]
        place[last] = value
        write_json(folder / "metrics.json", content)
        return read_run(folder)

    yield read
    (folder / "metrics.json").write_text(text)


def test_every_part_is_read(folder):
    results = read_run(folder).results
    assert set(results.more) == {"brier", "adaptive_ece", "classwise_ece", "aurc", "member_nll"}
    assert results.diversity.kl_matrix.shape == (3, 3)
    shift = results.shift["cifar10-c"]
    assert (shift.types, shift.severities, shift.scores["nll"].shape) == (
        ALL19,
        (1, 2, 3, 4, 5),
        (19, 5),
    )
    assert (shift.source, shift.frost) == ("generated", "synthetic")
    assert set(results.ood) == {"svhn", "gaussian-noise"}
    assert set(results.ood["svhn"].scores) == {
        *("max_probability", "entropy", "mutual_information")
    }
    assert results.attacks["fgsm"].epsilon == pytest.approx(8 / 255)
    assert [each.layer for each in results.features] == LAYERS
    assert np.mean(results.layers[0].density) == pytest.approx(0.4)


def test_a_run_without_them_has_none(write_run):
    results = read_run(write_run()).results
    parts = ("more", "shift", "natural", "ood", "attacks", "diversity", "features", "layers")
    assert [part for part in parts if getattr(results, part)] == []


def test_parts_that_are_not_known_are_no_damage(change):
    assert change(["weather"], {"sun": 1}).results.diversity is not None


def test_null_stands_for_what_is_no_number(change):
    run = change(["ensemble", "nll"], None)
    assert math.isnan(run.results.ensemble["nll"])
    run = change(["shift", "cifar10-c", "nll"], [[None] * 5] * 19)
    assert np.isnan(run.results.shift["cifar10-c"].scores["nll"]).all()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["more"], [1]),
        (["more", "brier"], "low"),
        (["diversity", "kl"], "much"),
        (["diversity", "kl_matrix"], [[1, 2], [3]]),
        (["diversity", "kl_matrix"], [[1, 2, 3]]),
        (["diversity"], {"kl": 1}),
        (["shift"], [3]),
        (["shift", "cifar10-c", "accuracy"], [[1, 2]]),
        (["shift", "cifar10-c", "types"], 3),
        (["shift", "cifar10-c", "means", "all19"], {}),
        (["ood", "svhn", "samples"], None),
        (["ood", "svhn", "entropy"], {"auroc": 1}),
        (["attacks", "fgsm", "transfer"], []),
        (["attacks", "fgsm"], 1),
        (["features"], [{"layer": "conv"}]),
        (["layers"], [{"name": "conv", "density": []}]),
        (["natural"], {"imagenet-a": {"200-way": {"nll": 1}}}),
    ],
)
def test_damaged_values_are_one_line(folder, change, path, value):
    with pytest.raises(FreeTicketsError) as caught:
        change(path, value)
    message = str(caught.value)
    assert "\n" not in message
    assert f"{folder}/metrics.json is damaged" in message


def test_natural_shifts_are_read(change):
    scores = {"accuracy": 0.04, "nll": 5.0, "ece": 0.3}
    run = change(["natural"], {"imagenet-a": {"1000-way": scores, "200-way": scores}})
    assert run.results.natural["imagenet-a"]["200-way"]["accuracy"] == 0.04
