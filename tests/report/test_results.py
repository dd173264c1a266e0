import numpy as np
import pytest

from freetickets.errors import FreeTicketsError
from freetickets.report.run import read_run
from freetickets.seal import open_values
from freetickets.storage import write_json

from .fake_runs import FAKES, write_fake


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_fake(tmp_path_factory.mktemp("runs"), FAKES[3], samples=100)


@pytest.fixture
def change(folder):
    """Reads the run with one part of metrics.json changed."""
    text = (folder / "metrics.json").read_text()

    def read(path, value):
        place = content = open_values(text)
        *above, last = path
        for key in above:
            place = place[key]
        place[last] = value
        write_json(folder / "metrics.json", content)
        return read_run(folder)

    yield read
    (folder / "metrics.json").write_text(text)


def test_a_run_without_them_has_none(write_run):
    results = read_run(write_run()).results
    parts = ("more", "shift", "natural", "ood", "attacks", "diversity", "features", "layers")
    assert [part for part in parts if getattr(results, part)] == []


def test_unknown_parts_and_null_for_what_is_no_number_are_no_damage(change):
    assert change(["weather"], {"sun": 1}).results.diversity is not None
    run = change(["shift", "cifar10-c", "nll"], [[None] * 5] * 19)
    assert np.isnan(run.results.shift["cifar10-c"].scores["nll"]).all()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["more"], [1]),
        (["more", "brier"], "low"),
        (["diversity", "kl_matrix"], [[1, 2], [3]]),
        (["diversity", "kl_matrix"], [[1, 2, 3]]),
        (["shift", "cifar10-c", "types"], 3),
        (["shift", "cifar10-c", "means", "all19"], {}),
        (["ood", "svhn", "samples"], None),
        (["attacks", "fgsm", "transfer"], []),
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
