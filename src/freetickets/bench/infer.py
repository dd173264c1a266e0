"""Predicting with sparse members beside one dense network, in PyTorch and other libraries."""

import copy
import importlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FreeTicketsError
from ..kernels.inference import compile_network
from ..models import create_model
from ..sparsity import Sparsifier
from ..sparsity.topology import Topology
from .step import CIFAR
from .timing import NO_LIMITS, Bars, Ratio, Settings, compare, interleave, versus

Predict = Callable[[], Tensor]

_MODEL = "wrn-28-10"
# The threads of other libraries go to sleep in this time.
_PAUSE_SECONDS = 0.02
# For each batch, what three members may and should take beside one dense network in PyTorch.
_ENSEMBLE = {16: (1.0, 0.85), 128: (0.95, 0.80)}
# For each sparsity, what a network may and should take beside a dense one in ONNX Runtime.
_MEMBERS = {
    0.0: Bars((0.55, 0.40), (0.60, 0.45)),
    0.8: Bars((0.37, 0.30), (0.36, 0.30)),
    0.9: Bars((0.27, 0.20), (0.25, 0.20)),
    0.95: Bars((0.16, 0.12), (0.15, 0.11)),
}
_LATENCY = {0.9: Bars((0.45, 0.28), (0.40, 0.25))}


def ensemble(settings: Settings) -> Iterator[Ratio | str]:
    """A whole ensemble against one dense network in PyTorch."""
    model, members, sparsity = settings.model_or(_MODEL), 3, 0.8
    for batch in dict.fromkeys(map(settings.batch_or, _ENSEMBLE)):
        limits = _ENSEMBLE.get(batch, NO_LIMITS)
        x = torch.randn(batch, *CIFAR)
        dense = dense_sides(make_network(model)[0], x)
        ours = {"our dense": member_side(model, 0.0, x)}
        timings = interleave(
            {"member": member_side(model, sparsity, x), **ours, **dense}, settings.repeats
        )
        for others, whose in ((dense, "in PyTorch"), (ours, "compiled by us")):
            yield compare(
                f"predicting with {members} sparse members / with ONE dense network {whose} "
                f"({model}, batch {batch}, S={sparsity})",
                versus(timings, "member", others),
                limits if others is dense else NO_LIMITS,
                members,
            )


def members(settings: Settings) -> Iterator[Ratio | str]:
    """One member, and our dense network, against one dense network in other libraries."""
    return _against(settings, settings.batch_or(16), _MEMBERS, list(RIVALS))


def latency(settings: Settings) -> Iterator[Ratio | str]:
    """One member against one dense network in ONNX Runtime, a sample at a time."""
    return _against(settings, settings.batch or 1, _LATENCY, ["ONNX Runtime"])


def _against(
    settings: Settings, batch: int, limits: Mapping[float, Bars], rivals: Sequence[str]
) -> Iterator[Ratio | str]:
    """Times networks and the rivals that there are in one loop; limits are ONNX Runtime's."""
    model = settings.model_or(_MODEL)
    x = torch.randn(batch, *CIFAR)
    network, _ = make_network(model)
    others: dict[str, Predict] = {}
    for name in rivals:
        try:
            predict = RIVALS[name](network, x, settings.threads)
        except AbsentError as error:
            yield f"{name} is left out: {error}"
            continue
        others[name] = checked(name, predict, network, x)
    if not others:
        return
    ours = {
        f"member S={sparsity}" if sparsity else "our dense": member_side(model, sparsity, x)
        for sparsity in limits
    }
    timings = interleave({**ours, **others}, settings.repeats, pause=_PAUSE_SECONDS)
    for side, (sparsity, limit) in zip(ours, limits.items(), strict=True):
        what = "one sparse member" if sparsity else "the dense network, compiled by us,"
        for name in others:
            yield compare(
                f"{what} / one dense network in {name} ({model}, batch {batch}, S={sparsity:g})",
                versus(timings, side, [name]),
                limit.here if name == "ONNX Runtime" else NO_LIMITS,
            )


# ---- the sides


def make_network(model: str, sparsity: float = 0.0) -> tuple[nn.Module, Topology]:
    """Builds a network, ready to predict, and its topology; a dense one has none."""
    torch.manual_seed(0)
    network = create_model(model, CIFAR, 10)
    topology: Topology = {}
    if sparsity:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        options: dict[str, Any] = {"exploration": None, "backend": "masked"}
        topology = Sparsifier(network, optimizer, sparsity, **options).topology
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches: two are enough then
    with torch.no_grad():
        for _ in range(2):
            network(torch.randn(8, *CIFAR))
    return network.eval().requires_grad_(False), topology


def member_side(model: str, sparsity: float, x: Tensor) -> Predict:
    """A sparse network, compiled for prediction; raises if it can't be, or predicts otherwise."""
    network, topology = make_network(model, sparsity)
    compiled = compile_network(network, topology)
    if compiled is network:
        raise FreeTicketsError(f"{model} can't be compiled: are the sparse kernels built?")
    return checked("the compiled member", lambda: compiled(x), network, x)


def dense_sides(network: nn.Module, x: Tensor) -> dict[str, Predict]:
    """A dense network in PyTorch, in either layout of its maps."""
    contiguous = copy.deepcopy(network)
    contiguous._forward_pre_hooks.clear()  # one of them makes the input channels_last
    last = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    last_x = x.contiguous(memory_format=torch.channels_last)
    eager = torch.inference_mode()
    return {
        "PyTorch contiguous": eager(partial(contiguous, x)),
        "PyTorch channels_last": eager(partial(last, last_x)),
    }


def checked(name: str, predict: Predict, network: nn.Module, x: Tensor) -> Predict:
    """Returns the function, if it predicts what the network does: else its time means nothing."""
    with torch.no_grad():
        wanted = network(x)
    error = float((predict() - wanted).abs().max() / wanted.abs().max())
    if not error < 1e-3:
        told = f"relative error {error:.2g}"
        raise FreeTicketsError(f"{name} does not predict what the network does: {told}")
    return predict


# ---- other ways to predict with a dense network


class AbsentError(Exception):
    """A rival can't run here; the message says what it takes."""


def onnx_runtime(network: nn.Module, x: Tensor, threads: int) -> Predict:
    """The network in ONNX Runtime."""
    runtime = _package("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Its threads would go on spinning after a run, on the cores of the side that is timed next.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = runtime.InferenceSession(
        _onnx(network, x), options, providers=["CPUExecutionProvider"]
    )
    inputs = {session.get_inputs()[0].name: x.numpy()}
    return lambda: torch.from_numpy(session.run(None, inputs)[0])


def openvino(network: nn.Module, x: Tensor, threads: int) -> Predict:
    """The network in OpenVINO, in full precision."""
    core = _package("openvino").Core()
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    options["PERFORMANCE_HINT"] = "LATENCY"  # one batch at a time, on all threads
    model = core.read_model(io.BytesIO(_onnx(network, x)))
    compiled = core.compile_model(model, "CPU", options)
    inputs = [x.numpy()]
    return lambda: torch.from_numpy(compiled(inputs, share_inputs=True)[0])


def torch_compile(network: nn.Module, x: Tensor, threads: int) -> Predict:
    """The network as PyTorch's own compiler has it, its weights frozen."""
    try:
        compiled = torch.compile(network, options={"freezing": True})

        @torch.no_grad()
        def predict() -> Tensor:
            return compiled(x)

        predict()
    except Exception as error:  # whatever a compiler, or the lack of one, may raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise AbsentError(f"it needs a C++ compiler that works ({lines[0]})") from error
    return predict


RIVALS: dict[str, Callable[[nn.Module, Tensor, int], Predict]] = {
    "ONNX Runtime": onnx_runtime,
    "OpenVINO": openvino,
    "torch.compile": torch_compile,
}


def _onnx(network: nn.Module, x: Tensor) -> bytes:
    _package("onnx")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The older exporter, because the newer one needs one more package; it says that it is old.
        warnings.simplefilter("ignore")
        path = Path(folder, "network.onnx")
        torch.onnx.export(network, (x,), path, dynamo=False)
        return path.read_bytes()


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        told = f"it needs the package {name}: pip install 'freetickets[bench]'"
        raise AbsentError(told) from None
