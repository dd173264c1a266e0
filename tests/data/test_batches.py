import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freetickets.data import Batches, LazySplit, Split, get_spec, load
from freetickets.data.batches import AUGMENTATIONS, crop_flip, draw_moves

names = st.sampled_from(list(AUGMENTATIONS))


def images(count, channels=1, size=6):
    rng = np.random.default_rng(count)
    pixels = rng.integers(0, 256, (count, channels, size, size), dtype=np.uint8)
    return Split(torch.from_numpy(pixels), torch.arange(count))


def same(ours, theirs):
    ours, theirs = list(ours), list(theirs)
    return len(ours) == len(theirs) and all(
        torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(ours, theirs, strict=True)
    )


@given(count=st.integers(2, 60), size=st.integers(2, 20), seed=st.integers(0, 99))
def test_an_epoch_shows_every_sample_once_but_for_a_single_last_one(count, size, seed):
    batches = Batches(images(count), size, seed=seed)
    epoch = list(batches.epoch(3))
    seen = torch.cat([labels for _, labels in epoch]).tolist()
    assert len(epoch) == len(batches)
    assert len(set(seen)) == len(seen) == count - (count % size == 1)
    assert all(len(labels) > 1 for _, labels in epoch)
    kept = Batches(images(count), size, shuffle=False)  # as evaluation does
    assert torch.cat([labels for _, labels in kept.epoch(3)]).tolist() == list(range(count))


@settings(deadline=None)
@given(st.integers(8, 60), st.integers(4, 20), st.integers(0, 2**63), names, st.data())
def test_an_epoch_continued_in_the_middle_is_the_same(count, size, seed, name, data):
    batches = Batches(images(count), size, seed=seed, augmentation=name)
    start = data.draw(st.integers(0, len(batches)))
    whole = list(batches.epoch(3))
    assert same(whole[start:], batches.epoch(3, start))


@settings(deadline=None)
@given(st.integers(16, 60), st.integers(8, 20), st.integers(1, 4), st.booleans(), names)
def test_the_ranks_share_the_batch_of_one_rank(count, size, world, shuffle, name):
    split = images(count)
    options = {"augmentation": name, "seed": 5, "shuffle": shuffle}
    alone = list(Batches(split, size, **options).epoch(1))
    ranks = [Batches(split, size, rank=r, world=world, **options) for r in range(world)]
    parts = [list(rank.epoch(1)) for rank in ranks]
    if shuffle and 2 <= count % size < 2 * world:  # too few for BatchNorm: all have them all
        assert all(same([part.pop()], alone[-1:]) for part in parts)
        alone.pop()
    joined = [
        tuple(torch.cat(tensors) for tensors in zip(*step, strict=True))
        for step in zip(*parts, strict=True)
    ]
    assert same(joined, alone)


@settings(deadline=None, max_examples=30)
@given(count=st.integers(16, 60), size=st.integers(8, 20), world=st.integers(1, 4))
def test_the_mean_over_ranks_is_the_mean_over_the_batch(count, size, world):
    split = Split(torch.rand(count, 1, dtype=torch.float64), torch.zeros(count).long())
    alone = Batches(split, size, seed=3)
    ranks = [Batches(split, size, seed=3, rank=r, world=world) for r in range(world)]
    assert {len(rank) for rank in ranks} == {len(alone)}
    for number, (x, _) in enumerate(alone.epoch(0)):
        parts = [(next(rank.epoch(0, number))[0], rank.factor(number)) for rank in ranks]
        mean = sum(part.mean() * factor for part, factor in parts) / world
        torch.testing.assert_close(mean, x.mean())
        assert ranks[0].size(number) == len(x) == len(next(ranks[-1].whole().epoch(0, number))[0])


def test_epochs_and_seeds_differ_in_order_and_crops_and_nothing_else_is_drawn_from():
    split = images(40)
    before, state = split.inputs.clone(), torch.get_rng_state()
    first = list(Batches(split, 20, seed=0).epoch(0))
    assert not same(first, Batches(split, 20, seed=1).epoch(0))
    assert not same(first, Batches(split, 20, seed=0).epoch(1))
    fixed = Batches(split, 20, shuffle=False, augmentation="pad-crop-flip")
    assert not same(fixed.epoch(0), fixed.epoch(1))
    assert torch.equal(split.inputs, before)
    assert torch.equal(torch.get_rng_state(), state)


def unmoved(size):
    """Images whose left half tells their number, the right half is black, without a border."""
    split = images(size, size=8)
    split.inputs[..., :4] = torch.arange(1, size + 1).view(-1, 1, 1, 1)
    split.inputs[..., 4:] = 0
    return split


def sides(batches, epoch):
    """Which images an epoch shows mirrored, by number."""
    return {
        int(number): bool(image[0, 4, 0] == 0)
        for inputs, labels in batches.epoch(epoch)
        for image, number in zip(inputs, labels, strict=True)
    }


def test_two_epochs_show_both_sides_and_translation_alone_mirrors_nothing():
    batches = Batches(unmoved(60), 7, augmentation="translate-alternate", seed=3)
    first, second, third = (sides(batches, epoch) for epoch in range(3))
    assert len(first) == 60
    assert second == {number: not mirrored for number, mirrored in first.items()}
    assert third == first
    assert 15 < sum(first.values()) < 45
    # An image's side is its own, however the epoch is cut into batches.
    for seed, known in ((3, True), (4, False)):
        other = Batches(unmoved(60), 20, augmentation="translate-alternate", seed=seed)
        assert (sides(other, 0) == first) == known
    batches = Batches(unmoved(60), 30, augmentation="translate")
    assert not any(any(sides(batches, epoch).values()) for epoch in range(3))
    split = Split(torch.zeros(900, 1, 32, 32, dtype=torch.uint8), torch.arange(900))
    split.inputs[:, 0, 16, 16] = 255
    found = {
        tuple(place)
        for inputs, _ in Batches(split, 90, augmentation="translate").epoch(0)
        for place in (inputs[:, 0] == 1).nonzero()[:, 1:].tolist()
    }
    assert found == {(row, column) for row in range(14, 19) for column in range(14, 19)}


def test_images_are_normalised_by_channel():
    split = images(8, channels=3)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    x, _ = next(Batches(split, 8, mean=mean, std=std, shuffle=False).epoch(0))
    expected = split.inputs.double().div(255).sub(torch.tensor(mean).view(3, 1, 1))
    expected = expected.div(torch.tensor(std).view(3, 1, 1))
    torch.testing.assert_close(x, expected.float())
    plain, _ = next(Batches(split, 8, shuffle=False).epoch(0))
    torch.testing.assert_close(plain, split.inputs.float() / 255)
    features = Split(torch.randn(6, 5), torch.arange(6))
    x, y = next(Batches(features, 6).epoch(0))
    assert torch.equal(x, features.inputs[y])
    x.zero_()  # a copy
    assert features.inputs.abs().sum() > 0


def test_nonsense_is_refused(refused):
    for options, message in (
        ({"augmentation": "imagenet"}, "not for images in memory"),
        ({"augmentation": "blur"}, "choose from"),
        ({"mean": (0.5, 0.5), "std": (1.0, 1.0)}, "give 1 of each"),
        ({"std": (0.0,)}, "std above 0"),
        ({"rank": 2, "world": 2}, "rank 2 of 2"),
        ({"world": 9}, "a sample for each rank"),
        ({"seed": -1}, "negative"),
        ({"workers": -1}, "negative"),
    ):
        refused(message, Batches, images(20), 8, **options)
    refused("there are 3 batches", Batches(images(20), 8).epoch, 0, start=4)
    refused("make no batch", Batches, images(1), 8)
    features = Split(torch.zeros(4, 2), torch.arange(4))
    refused("not for features", Batches, features, 2, augmentation="pad-crop-flip")
    refused("no mean", Batches, features, 2, mean=(0.5,), std=(0.5,))


@pytest.fixture
def photos(image_tree):
    folder = image_tree(size=(120, 100), count=6)
    split = load(get_spec(str(folder), image_size=97), "train")
    assert isinstance(split, LazySplit)
    return split


def test_decoding_is_the_same_in_workers_and_ranks_and_a_bad_photo_one_line(photos, refused):
    options = {"augmentation": "imagenet", "seed": 3}
    state = torch.get_rng_state()
    alone = list(Batches(photos, 4, **options).epoch(2))
    assert alone[0][0].shape == (4, 3, 97, 97)
    assert same(Batches(photos, 4, workers=2, **options).epoch(2), alone)
    assert same(Batches(photos, 4, **options).epoch(2, start=1), alone[1:])
    second = Batches(photos, 4, rank=1, world=2, **options).epoch(2)
    assert same(second, [(x[2:], y[2:]) for x, y in alone])
    assert torch.equal(torch.get_rng_state(), state)
    for x, y in alone:
        assert torch.equal((x[:, 0].amax((1, 2)) * 255).round().long(), y * 100)
    photos.paths[3].write_bytes(b"no image")
    for workers in (0, 1):
        epoch = Batches(photos, 4, shuffle=False, workers=workers).epoch(0)
        refused(r"3\.png|0\.png is no image", list, epoch)


def pixel_by_pixel(image, pad, top, left, mirrored, reflect):
    """One image, the slow way: look up where each pixel of the crop comes from."""
    channels, height, width = image.shape
    result = np.zeros_like(image)
    for c, y, x in np.ndindex(channels, height, width):
        row, column = y + top - pad, (width - 1 - x if mirrored else x) + left - pad
        if reflect:
            row, column = abs(row), abs(column)
            row = min(row, 2 * (height - 1) - row)
            column = min(column, 2 * (width - 1) - column)
        if 0 <= row < height and 0 <= column < width:
            result[c, y, x] = image[c, row, column]
    return result


@given(st.integers(0, 1000), st.integers(1, 4), st.sampled_from(["constant", "reflect"]), st.data())
def test_a_batch_is_augmented_like_its_images_one_by_one(seed, pad, border, data):
    sides = [data.draw(st.integers(*ends)) for ends in ((0, 4), (1, 3), (5, 9), (5, 9))]
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, sides, dtype=np.uint8)
    moves = draw_moves(rng, len(images), pad)
    result = crop_flip(images, moves, pad, border)
    assert (result.shape, result.dtype) == (images.shape, np.uint8)
    for image, move, one in zip(images, moves.T, result, strict=True):
        expected = pixel_by_pixel(image, pad, *move, border == "reflect")
        assert np.array_equal(one, expected)


def test_all_offsets_and_both_sides_are_drawn_evenly():
    top, left, mirrored = draw_moves(np.random.default_rng(0), 81_000, 4)
    counts = np.bincount(top * 9 + left, minlength=81)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert abs(mirrored.mean() - 0.5) < 0.01


@pytest.mark.parametrize(
    ("part", "pads"), [(8, (8, 4, 4, 2, 2, 1, 1, 1, 0)), (16, (4, 2, 2, 1, 1, 1, 1, 1, 0))]
)
def test_images_move_by_an_eighth_or_a_sixteenth_of_a_side(part, pads):
    for name in (name for name, each in AUGMENTATIONS.items() if each.part == part):
        for side, pad in zip((64, 32, 28, 16, 14, 8, 3, 2, 1), pads, strict=True):
            assert AUGMENTATIONS[name].padding(side, side) == pad
            assert AUGMENTATIONS[name].padding(side, side + 30) == pad
