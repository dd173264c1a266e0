"""Other ways to predict with a dense network: ONNX Runtime, OpenVINO, torch.compile."""

from __future__ import annotations

import importlib
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Predict = Callable[[], Tensor]


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
    compiled = core.compile_model(
        core.read_model(io.BytesIO(_onnx(network, x))),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",  # one batch at a time, on all threads
        },
    )
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
        raise AbsentError(
            f"it needs the package {name}: pip install 'freetickets[bench]'"
        ) from None
