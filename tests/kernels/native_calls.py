"""Calls of the compiled functions, with all their arguments by name."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from freetickets.kernels import library, ops

ARGUMENTS = {
    "ft_plan": "layer indices nonzeros plan size",
    "ft_forward": "layer maps x values plan nonzeros bias y threads",
    "ft_prepare": "layer maps values plan nonzeros entries threads",
    "ft_forward_fused": "layer maps x entries plan nonzeros factor shift relu bias residual relu y "
    "threads",
    "ft_input_gradient": "layer maps dy values plan nonzeros dx threads",
    "ft_weight_gradient": "layer maps x dy plan nonzeros dvalues threads",
    "ft_linear": "layer samples x values plan nonzeros bias relu y threads",
    "ft_linear_backward": "layer samples x result dy values plan nonzeros dx dvalues dbias threads",
    "ft_normalize": "norm x weight bias eps relu y mean variance threads",
    "ft_scale": "norm x weight bias mean variance eps relu y threads",
    "ft_normalize_backward": "norm x dy weight bias mean variance eps relu training dx dweight "
    "dbias threads",
    "ft_to_groups": "norm x y threads",
    "ft_from_groups": "norm x y threads",
    "ft_halo": "halo x factor shift relu y threads",
}
ARGUMENTS = {name: words.split() for name, words in ARGUMENTS.items()}
# What a function writes to, if it is not `y`.
RESULTS = {
    "ft_plan": ["plan"], "ft_prepare": ["entries"], "ft_input_gradient": ["dx"],
    "ft_weight_gradient": ["dvalues"], "ft_linear_backward": ["dx", "dvalues", "dbias"],
    "ft_normalize": ["y", "mean", "variance"], "ft_normalize_backward": ["dx", "dweight", "dbias"],
}  # fmt: skip

WITH_LAYER = tuple(ARGUMENTS)[1:6]
WITH_SAMPLES = ("ft_linear", "ft_linear_backward")
WITH_VECTORS = ("ft_normalize", "ft_scale", "ft_normalize_backward")
WITH_NORM = (*WITH_VECTORS, "ft_to_groups", "ft_from_groups")


def in_own_process(module, *arguments, **environment):
    """Runs a file of tests as a program; it says where it failed."""
    child = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=120,
        env=os.environ | environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    last = "".join(child.stdout.splitlines()[-1:])
    assert child.returncode == 0, f"{last} ended the process: {child.returncode} {child.stderr}"


def call(function, given):
    """Calls a function with those of these arguments that it takes."""
    library.call(function, *(given[name] for name in ARGUMENTS[function]))


def computed(function, given):
    """What a function writes into memory of its own."""
    names = RESULTS.get(function, ["y"])
    given = given | {name: torch.zeros_like(given[name]) for name in names}
    call(function, given)
    return [given[name] for name in names]


def layer_arguments(geometry, maps, density=0.5, seed=1, indices=None):
    """All that the functions of a layer take, for maps of this size.

    Nothing was prepared if the indices are given, so nothing but the plan was computed yet.
    """
    is_prepared = indices is None
    source = torch.Generator().manual_seed(seed)
    if indices is None:
        mask = torch.rand(torch.Size(geometry.shape).numel(), generator=source) < density
        mask[-1] = True
        indices = mask.nonzero().flatten().int()
    groups, lanes, *size = (getattr(maps, name) for name, *_ in maps._fields_)
    (outputs, inputs, *_), layer = geometry.shape, library.layer_struct(geometry)
    x = torch.randn(groups, inputs, *size, lanes, generator=source)
    y = torch.empty(groups, outputs, *geometry.output_size(*size), lanes)
    given = {
        "layer": layer, "maps": maps, "indices": indices,
        "values": torch.randn(indices.numel(), generator=source),
        "plan": ops.make_plan(indices, geometry), "nonzeros": indices.numel(),
        "size": library.native().ft_plan_size(layer, indices.numel()),
        "entries": torch.empty(indices.numel(), dtype=torch.int64), "x": x, "y": y,
        "dy": torch.randn(y.shape, generator=source),
        "result": torch.randn(y.shape, generator=source), "dx": torch.empty_like(x),
        "dvalues": torch.empty(indices.numel()), "dbias": torch.empty(outputs),
        "samples": lanes * size[1], "bias": None, "factor": torch.ones(inputs),
        "shift": torch.zeros(inputs), "residual": None, "relu": 0, "threads": 2,
    }  # fmt: skip
    if is_prepared:
        call("ft_prepare", given)
    return given


def halo_arguments(halo, seed=1):
    """All that `ft_halo` takes, for blocks of this size."""
    source = torch.Generator().manual_seed(seed)
    size, lanes = (halo.groups, halo.channels), halo.lanes
    result = (halo.height + halo.top + halo.bottom, halo.width + halo.left + halo.right)
    return {
        "halo": halo, "x": torch.randn(*size, halo.height, halo.width, lanes, generator=source),
        "factor": torch.randn(halo.channels, generator=source), "threads": 2,
        "shift": torch.randn(halo.channels, generator=source), "relu": 1,
        "y": torch.empty(*size, *result, lanes),
    }  # fmt: skip


def norm_arguments(norm, seed=None):
    """All that the functions of a BatchNorm take, for maps of this size; ones without a seed."""
    floats = norm.groups * norm.lanes * norm.channels * norm.positions
    source = None if seed is None else torch.Generator().manual_seed(seed)
    statistics = ("weight", "bias", "mean", "variance", "dweight", "dbias")
    sizes = dict.fromkeys(("x", "dy", "y", "dx"), floats) | dict.fromkeys(statistics, norm.channels)
    return {
        "norm": norm,
        **{k: torch.ones(n) if seed is None else torch.rand(n, generator=source)
           for k, n in sizes.items()},
        "eps": 1e-5,
        "relu": 1,
        "training": 1,
        "threads": 2,
    }  # fmt: skip
