"""What PyTorch computes, with gradients, and how far from it a result may be."""

import torch


def directions(function, *leaves, sizes=False):
    """The result of a function and its gradients, for a gradient that is always the same.

    With `sizes` the signs of all numbers are left out: so it is what the terms of all sums add up
    to, if the function is linear.
    """
    leaves = tuple(None if t is None else t.detach().clone() for t in leaves)
    if sizes:
        leaves = tuple(None if t is None else t.abs() for t in leaves)
    given = [t.requires_grad_() for t in leaves if t is not None]
    y = function(*leaves)
    gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(-7)).to(y.dtype)
    found = torch.autograd.grad(y, given, gradient.abs() if sizes else gradient)
    return [y.detach(), *found]


def assert_close(found, wanted, terms, bound=1e-5):
    """Within the bound of the largest result, or of a tenth of what its terms add up to.

    A few numbers may cancel by chance: then any way of adding them up has a large error.
    """
    for mine, theirs, sizes in zip(found, wanted, terms, strict=True):
        assert mine.shape == theirs.shape
        if theirs.numel():
            limit = bound * max(float(theirs.abs().max()), 0.1 * float(sizes.max()))
            assert float((mine.double() - theirs).abs().max()) <= limit
