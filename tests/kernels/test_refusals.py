"""Operators refuse what they can't take, whether they compute or only say what would come out."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from freetickets.errors import FreeTicketsError
from freetickets.kernels import groups, linear, norm, ops, pool
from freetickets.kernels.library import Geometry, lanes

SHAPE, STRIDE, PADDING = [4, 3, 3, 3], [1, 1], [1, 1]
COUNT = 30


def valid(ways=0, missing=1):
    """Each operator with arguments that it takes, so many samples less than two groups hold."""
    width = lanes()
    indices = torch.arange(0, 2 * COUNT, 2, dtype=torch.int32)
    flat_indices = torch.arange(12, dtype=torch.int32)
    plan = ops.make_plan(indices, Geometry((4, 3, 3, 3), (1, 1), (1, 1)))
    flat_plan = ops.make_plan(flat_indices, Geometry((4, 3, 1, 1)))
    x, gradient = torch.randn(2, 3, 6, 6, width), torch.randn(2, 4, 6, 6, width)
    values, flat_values = torch.randn(COUNT), torch.randn(12)
    settings, flat_settings = [SHAPE, STRIDE, PADDING, ways], [[4, 3], width, ways, False]
    channels = [torch.ones(3) for _ in range(4)]
    batch = 2 * width - missing
    features, flat_gradient = torch.randn(batch, 3), torch.randn(batch, 4)
    return {
        "to_groups": (groups.to_groups, [torch.randn(batch, 3, 6, 6), width]),
        "from_groups": (groups.from_groups, [x, batch]),
        "conv2d": (ops.conv2d, [x, values, indices, plan, torch.ones(4), *settings]),
        "conv2d_input_gradient": (
            ops.conv2d_input_gradient, [gradient, values, indices, plan, [6, 6], *settings],
        ),
        "conv2d_weight_gradient": (
            ops.conv2d_weight_gradient, [x, gradient, indices, plan, *settings],
        ),
        "columns": (linear.columns, [torch.randn(width, 3), width]),
        "linear": (
            linear.linear,
            [features, flat_values, flat_indices, flat_plan, torch.ones(4), *flat_settings],
        ),
        "linear_backward": (
            linear.linear_backward,
            [
                features, flat_gradient, flat_gradient, flat_values, flat_indices, flat_plan,
                [True] * 3, *flat_settings[:3],
            ],
        ),
        "batch_norm": (norm.batch_norm, [x, *channels[:2], batch, 1e-5, False]),
        "scale": (norm.scale, [x, *channels, batch, 1e-5, False]),
        "batch_norm_backward": (
            norm.batch_norm_backward, [x, x, *channels, batch, 1e-5, False, True],
        ),
        "max_pool": (pool.max_pool, [x, [2, 3]]),
        "max_pool_backward": (
            pool.max_pool_backward,
            [x[:, :, :3, :2], torch.ones(2, 3, 3, 2, width, dtype=torch.uint8), [2, 3], [6, 6]],
        ),
        "mean_pool": (pool.mean_pool, [x]),
        "mean_pool_backward": (pool.mean_pool_backward, [x[:, :, :1, :1], [6, 6]]),
    }  # fmt: skip


def changed(tensor):
    """The tensor with another rank, another precision, other sizes."""
    yield tensor[0]
    yield tensor[None]
    yield tensor.double()
    for dimension in range(tensor.dim()):
        yield torch.cat([tensor, tensor.narrow(dimension, 0, 1)], dimension)


# What is not refused: another number of samples, maps of another size.
FREE = {
    ("to_groups", 0): (0, 1, 2, 3), ("from_groups", 0): (1, 2, 3, 4), ("conv2d", 0): (0, 2, 3),
    ("conv2d_input_gradient", 0): (0,), ("columns", 0): (0, 1), ("linear", 0): (0,),
    ("batch_norm", 0): (2, 3), ("scale", 0): (2, 3),
    ("max_pool", 0): (0, 1, 2, 3), ("mean_pool", 0): (0, 1, 2, 3),
    ("mean_pool_backward", 0): (0, 1),
}  # fmt: skip

DIFFERENTIABLE = ("to_groups", "from_groups", "conv2d", "columns", "linear", "batch_norm", "scale",
    "max_pool", "mean_pool")  # fmt: skip
NAMES = (*DIFFERENTIABLE, "conv2d_input_gradient", "conv2d_weight_gradient", "linear_backward",
    "batch_norm_backward", "max_pool_backward", "mean_pool_backward")  # fmt: skip


def results(name, place=None, wrong=None):
    """What an operator and its fake version return, or say if an argument is wrong."""
    operator, arguments = valid()[name]
    if place is not None:
        arguments[place] = wrong
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(a) if isinstance(a, Tensor) else a for a in arguments]
    for given, within in ((arguments, nullcontext()), (fakes, mode)):
        with within:
            try:
                found = operator(*given)
            except FreeTicketsError as error:
                yield str(error)
            else:
                yield found if isinstance(found, tuple) else (found,)


def refuses(name, place, wrong):
    """Checks that an operator refuses an argument in one line, and its fake version as well."""
    said, said_of_fakes = results(name, place, wrong)
    assert said == said_of_fakes
    assert isinstance(said, str)
    assert "\n" not in said


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_takes_what_it_should(name):
    for mine, theirs in zip(*results(name), strict=True):
        assert (mine.shape, mine.stride()) == (theirs.shape, theirs.stride())


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_refuses_tensors_that_do_not_fit(name):
    for place, argument in enumerate(valid()[name][1]):
        if isinstance(argument, Tensor) and argument.dtype == torch.float32:
            for number, wrong in enumerate(changed(argument)):
                if number - 3 not in FREE.get((name, place), ()):
                    refuses(name, place, wrong)


@pytest.mark.parametrize(
    ("name", "place", "wrong"),
    [
        ("to_groups", 1, 0),
        ("from_groups", 1, 0),
        ("from_groups", 1, 1000),
        ("conv2d", 5, [4, 3, 3]),
        ("conv2d", 6, [1]),
        ("conv2d", 4, torch.ones(3)),
        ("conv2d", 2, torch.arange(COUNT)),
        ("conv2d", 2, torch.arange(COUNT + 1, dtype=torch.int32)),
        ("conv2d_input_gradient", 4, [7, 6]),
        ("conv2d_input_gradient", 4, [6]),
        ("linear", 6, 0),
        ("linear", 4, torch.ones(3)),
        ("batch_norm", 3, 1),
        ("batch_norm", 3, 1000),
        ("max_pool", 1, [7, 1]),
        ("max_pool_backward", 3, [9, 6]),
        ("mean_pool_backward", 1, [6, 0]),
        ("mean_pool_backward", 1, [6]),
    ],
)
def test_every_operator_refuses_settings_that_do_not_fit(name, place, wrong):
    refuses(name, place, wrong)


@pytest.mark.parametrize("missing", [0, 3], ids=["full", "with empty lanes"])
@pytest.mark.parametrize("ways", [0, ops.ALL], ids=["sparse", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_keeps_pytorchs_rules(name, ways, missing):
    """With the gradients of those that have some."""
    operator, arguments = valid(ways, missing)[name]
    for place, argument in enumerate(arguments):
        if name in DIFFERENTIABLE and isinstance(argument, Tensor) and place < 5:
            arguments[place] = argument.requires_grad_(
                argument.is_floating_point() and (name != "scale" or place < 3)
            )
    torch.library.opcheck(operator, tuple(arguments))
    if name in ("conv2d", "linear"):
        arguments[4] = None  # no bias
        torch.library.opcheck(operator, tuple(arguments))
