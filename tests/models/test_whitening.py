"""Whitening, against a computation of its own: patch by patch, in NumPy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from freetickets.models.prepare import Whitening, patch_covariance


def patches(images, kernel):
    """All patches of images, one after the other."""
    height, width = images.shape[2:]
    places = itertools.product(range(height - kernel + 1), range(width - kernel + 1))
    found = [images[:, :, y : y + kernel, x : x + kernel].flatten(1) for y, x in places]
    return torch.cat(found).double().numpy()


def coloured(count, channels, seed=0):
    """Images whose neighbouring pixels and channels are alike, as in photographs."""
    noise = torch.randn(count, channels, 12, 10, generator=torch.Generator().manual_seed(seed))
    smooth = noise.cumsum(2).cumsum(3) / 10
    return smooth + smooth.mean(1, keepdim=True) + 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 600), st.integers(1, 4), st.integers(1, 3))
def test_the_covariance_is_that_of_all_patches(count, channels, kernel):
    images = coloured(count, channels)
    expected = np.cov(patches(images, kernel), rowvar=False, bias=True)
    np.testing.assert_allclose(patch_covariance(images, kernel), np.atleast_2d(expected), atol=1e-9)


@pytest.mark.parametrize("channels", [1, 3])
def test_whitened_patches_are_uncorrelated_and_of_variance_one(channels):
    images = coloured(300, channels)
    whitening = Whitening(channels)
    whitening.prepare_on(images)
    size = 4 * channels
    assert whitening.conv.out_channels == 2 * size
    y = whitening(images).detach().double()
    assert y.shape == (300, 2 * size, 11, 9)
    first, negative = y.transpose(0, 1).flatten(1).split(size)
    assert torch.equal(first, -negative)
    eigenvalues = np.linalg.eigvalsh(np.cov(patches(images, 2), rowvar=False))[::-1]
    expected = np.diag(eigenvalues / (eigenvalues + whitening.eps))  # all but 1
    np.testing.assert_allclose(np.cov(first.numpy()), expected, atol=2e-4)


def test_the_filters_do_not_depend_on_the_way_in_which_eigenvectors_point():
    weights = []
    for sign in (1, -1):
        whitening = Whitening(3)
        whitening.prepare_on(sign * coloured(50, 3))  # the same covariance
        weights.append(whitening.conv.weight)
    torch.testing.assert_close(*weights)
    filters = weights[0][:12].flatten(1)
    largest = filters.gather(1, filters.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()


@pytest.mark.parametrize("images", [torch.zeros(5, 3, 8, 8), torch.full((5, 3, 8, 8), 1e4)])
def test_images_of_one_colour_make_no_infinite_filters(images):
    whitening = Whitening(3)
    whitening.prepare_on(images)
    assert whitening.conv.weight.isfinite().all()
    assert whitening.conv.weight.abs().max() <= 5e-4**-0.5


def test_before_it_has_seen_images_it_passes_on_pixels_and_only_its_bias_is_trained(refused):
    x = torch.randn(2, 3, 5, 5)
    whitening = Whitening(3)
    y = whitening(x)
    assert torch.equal(y[:, 0], x[:, 0, :-1, :-1])
    assert torch.equal(y[:, 12 + 7], -x[:, 1, 1:, 1:])
    assert [n for n, p in whitening.named_parameters() if p.requires_grad] == ["conv.bias"]
    for shape in ((4, 12), (4, 1, 8, 8)):
        words = "images with 3 channels, not inputs of shape"
        refused(words, whitening.prepare_on, torch.zeros(shape))
