import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freetickets import data
from freetickets.data.corruptions import (
    COMMON15,
    CORRUPTIONS,
    SEVERITIES,
    chosen,
    corrupt,
    set_name,
)
from freetickets.errors import MissingExtraError

# Where a higher severity need not change more: see the table in docs/corruptions.md.
NOT_MONOTONE = ("glass_blur", "frost", "elastic_transform", "spatter", "saturate", "motion_blur")
ALL = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]


@pytest.mark.parametrize(("name", "severity"), ALL)
def test_any_batch_gives_the_same_bytes_and_leaves_the_images_alone(photos, name, severity):
    before = photos.copy()
    together = corrupt(photos, name, severity)
    assert (together.shape, together.dtype) == (photos.shape, np.uint8)
    one_by_one = [corrupt(photos[i : i + 1], name, severity, first=i) for i in range(12)]
    assert np.array_equal(together, np.concatenate(one_by_one))
    assert np.array_equal(together[5:], corrupt(photos[5:], name, severity, first=5))
    assert np.array_equal(photos, before)
    assert not np.array_equal(together, photos)


def test_the_blocks_of_a_large_set_are_not_seen():
    images = np.random.default_rng(0).integers(0, 256, (600, 4, 4), dtype=np.uint8)
    for name in ("gaussian_noise", "snow", "fog"):
        last = corrupt(images[499:], name, 3, first=499)
        assert np.array_equal(corrupt(images, name, 3)[499:], last)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_seed_repeats_and_another_seed_differs_where_there_is_chance(photos, name):
    first, again, other = (corrupt(photos, name, 4, seed) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    fixed = "defocus_blur zoom_blur brightness contrast pixelate jpeg_compression gaussian_blur"
    assert np.array_equal(first, other) == (name in [*fixed.split(), "saturate"])


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in NOT_MONOTONE])
def test_a_higher_severity_changes_more(photos, name):
    changes = [
        np.abs(corrupt(photos, name, severity).astype(int) - photos).mean()
        for severity in SEVERITIES
    ]
    assert changes == sorted(changes)
    assert changes[4] > 1.2 * changes[0]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_grey_images_are_the_green_of_colour_ones(photos, name):
    grey = photos[..., 0]
    colour = np.repeat(grey[..., None], 3, axis=3)
    result = corrupt(grey, name, 5)
    assert np.array_equal(result, corrupt(colour, name, 5)[..., 1])
    assert np.array_equal(result[..., None], corrupt(grey[..., None], name, 5))
    assert corrupt(grey[:0], name, 5).shape == (0, 32, 32)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(ALL), *[st.integers(1, 70)] * 2, st.sampled_from([None, 0, 255]))
def test_every_size_and_flat_images_work(case, height, width, level):
    images = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    if level is not None:
        images[:] = level
    result = corrupt(images, *case)
    assert (result.shape, result.dtype) == (images.shape, np.uint8)


def test_names_and_sets_of_names_and_mistakes_in_one_line(refused, photos):
    assert len(CORRUPTIONS) == len(set(CORRUPTIONS)) == 19
    assert CORRUPTIONS[:15] == COMMON15
    assert chosen(["all19"]) == CORRUPTIONS
    assert chosen(["spatter", "common15", "snow"]) == (*COMMON15, "spatter")
    refused("did you mean 'common15'", chosen, ["comon15"])
    assert list(map(set_name, ("cifar100", "/my/bars.npz"))) == ["CIFAR-100-C", "bars-C"]
    for images, name, severity, text in [
        (photos, "gausian_noise", 1, "did you mean 'gaussian_noise'"),
        (photos, "fog", 0, "severity 0: choose it from 1 to 5"),
        (photos / 255, "fog", 1, "float64 of shape"),
        (photos.transpose(0, 3, 1, 2), "fog", 1, r"\(12, 3, 32, 32\)"),
        (photos[0, 0], "fog", 1, "uint8 of shape"),
    ]:
        refused(text, corrupt, images, name, severity)


def test_without_scipy_the_extra_is_named(photos, monkeypatch):
    monkeypatch.setattr(data, "corruptions", data.corruptions)  # as it is again after this test
    for module in [name for name in sys.modules if name.startswith("freetickets.data.corruptions")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    from freetickets.data.corruptions.apply import corrupt as fresh

    with pytest.raises(MissingExtraError, match=r"freetickets\[corruptions\]"):
        fresh(photos, "fog", 1)
