from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

from freetickets.data import LazySplit, Split, load
from freetickets.data.ood import fingerprints, load_ood, refuse_known

COLOUR = (3, 8, 8)


@pytest.fixture
def inside(rng):
    images = rng.integers(0, 256, (30, *COLOUR), dtype=np.uint8)
    return Split(torch.from_numpy(images), torch.arange(30) % 3)


def test_pure_noise_is_that_of_the_authors(inside):
    split = load_ood("gaussian-noise", inside, COLOUR)
    assert (split.inputs.shape, split.dtype) == ((10_000, *COLOUR), torch.uint8)
    assert set(split.labels.tolist()) == {-1}
    values = split.inputs.numpy().ravel() / 255
    # Beyond one, that is two deviations, the normal distribution is cut: half at either end.
    for end in (0, 1):
        assert (values == end).mean() == pytest.approx(stats.norm.sf(2.0), abs=2e-3)
    between = values[(values > 0) & (values < 1)]
    expected = stats.truncnorm(-2, 2, 0.5, 0.25)
    assert between.mean() == pytest.approx(0.5, abs=1e-3)
    assert between.std() == pytest.approx(expected.std(), abs=1e-3)
    assert stats.kstest(between[:20_000], expected.cdf).statistic < 0.015


def test_noise_is_the_same_each_time_and_fewer_samples_are_the_first(refused, inside):
    floats = Split(torch.zeros(3, 6), torch.zeros(3, dtype=torch.int64))
    photos = LazySplit((Path("a.png"),), torch.zeros(1, dtype=torch.int64), COLOUR)
    refused("takes floats", load_ood, "gaussian-noise", floats, (6,))
    refused("not for photos on disk", load_ood, "additive-noise", photos, COLOUR)
    assert len(load_ood("gaussian-noise", photos, COLOUR, samples=4)) == 4
    for name in ("gaussian-noise", "additive-noise"):
        whole = load_ood(name, inside, COLOUR, samples=20).inputs
        assert torch.equal(load_ood(name, inside, COLOUR, samples=7).inputs, whole[:7])


def test_additive_noise_lies_on_the_test_images(inside):
    noisy = load_ood("additive-noise", inside, COLOUR).inputs
    assert noisy.shape == inside.inputs.shape
    change = (noisy.double() - inside.inputs.double()).numpy() / 255
    middle = (inside.inputs >= 126) & (inside.inputs <= 129)  # nothing is cut there but the noise
    assert change[middle.numpy()].std() == pytest.approx(0.24, abs=0.05)
    assert abs(change).max() <= 0.5 + 1 / 255


def test_a_data_set_is_converted_only_if_asked_for(refused, inside):
    refused(r"fashion-mini are 1 x 28 x 28.*--resize", load_ood, "fashion-mini", inside, COLOUR)
    split = load_ood("fashion-mini", inside, COLOUR, resize=True, samples=5)
    assert split.inputs.shape == (5, *COLOUR)
    assert torch.equal(split.inputs[:, 0], split.inputs[:, 1])
    same = load_ood("fashion-mini", inside, (1, 28, 28))
    assert torch.equal(same.inputs, load("fashion-mini", "test").inputs)


def test_a_path_is_read_as_for_predictions(refused, inside, tmp_path, rng):
    images = rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", images)
    for number, image in enumerate(images):
        path = tmp_path / "pictures" / f"class{number // 3}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    for name in ("pictures", "x.npy"):
        path = str(tmp_path / name)
        split = load_ood(path, inside, COLOUR, samples=4)
        assert np.array_equal(split.inputs.numpy(), images.transpose(0, 3, 1, 2)[:4])
        assert split.labels.tolist() == [-1] * 4
        refused("--resize", load_ood, path, inside, (1, 4, 4))
        assert load_ood(path, inside, (1, 4, 4), resize=True).inputs.shape == (6, 1, 4, 4)


def test_what_is_not_there_is_told_apart(refused, inside, no_data):
    refused("unknown OoD set 'svnh': did you mean 'svhn'", load_ood, "svnh", inside, COLOUR)
    for path in ("some/where", "gone.npy"):
        refused("there is no such file or folder", load_ood, path, inside, COLOUR)
    for name in ("svhn", "cifar10", "cifar100", "fashion-mnist", "mnist"):
        refused("allow the download", load_ood, name, inside, (3, 32, 32), download=False)


def test_images_that_the_ensemble_knows_are_refused(refused, inside):
    known = fingerprints([inside])
    assert len(known) == 30
    fresh = load_ood("gaussian-noise", inside, COLOUR, samples=100).inputs
    refuse_known("noise", fresh, known)
    words = "2 of the 102 images of noise are in the data set"
    refused(words, refuse_known, "noise", torch.cat([fresh, inside.inputs[:2]]), known)
    refuse_known("noise", torch.cat([fresh, inside.inputs[:1]]), known)  # one twin may be chance


def test_the_published_sets_are_read(inside, real_data):
    root = real_data("test_32x32.mat")
    split = load_ood("svhn", inside, (3, 32, 32), root, download=False)
    assert split.inputs.shape[1:] == (3, 32, 32)
    assert int(split.labels.max()) == -1
    refuse_known("svhn", split.inputs, fingerprints([load("cifar10", "test", root)]))
