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
from torch.nn.utils import prune

from ..ensemble import Ensemble, load
from ..errors import FreeTicketsError
from ..evaluation.results import Evaluation
from ..kernels.inference import compile_network
from ..kernels.pruned import compile as compile_pruned
from ..metrics.predictive import RULES
from ..models import create_model
from ..sparsity import Sparsifier
from ..sparsity.topology import Topology
from ..ticket import Ticket
from .step import CIFAR
from .timing import NO_LIMITS, Bars, Ratio, Settings, compare, interleave, versus

Predict = Callable[[], Tensor]

_MODEL = "wrn-28-10"
# The threads of other libraries go to sleep in this time.
_PAUSE_SECONDS = 0.02
# For each batch, what three members may and should take beside one dense network in PyTorch.
_ENSEMBLE = {1: (1.2, 0.9), 16: (1.0, 0.8), 128: (0.95, 0.75)}
# For each sparsity, what a network may and should take beside a dense one in ONNX Runtime.
_MEMBERS = {
    0.0: Bars((0.55, 0.40), (0.60, 0.45)),
    0.8: Bars((0.37, 0.30), (0.36, 0.30)),
    0.9: Bars((0.27, 0.20), (0.25, 0.20)),
    0.95: Bars((0.16, 0.12), (0.15, 0.11)),
}
_LATENCY = {0.9: Bars((0.45, 0.28), (0.40, 0.25))}
_PHOTO = (3, 224, 224)
_PRUNED = {"resnet-18": _PHOTO, "resnet-50": _PHOTO, _MODEL: CIFAR}
_AMOUNTS = (0.0, 0.5, 0.8, 0.9, 0.95)  # of weights that are pruned


def ensemble(settings: Settings) -> Iterator[Ratio | str]:
    """A whole ensemble, loaded as anyone would, against one dense network in PyTorch.

    Where the record of an evaluation says how many answers its cascade took of 1, 2, ... members,
    there is a second row: what members asked in turn take on average, for such shares.
    """
    model, count, sparsity = settings.model_or(_MODEL), 3, 0.8
    asked = None if settings.record is None else _asked(Path(settings.record))
    folder = tempfile.TemporaryDirectory()
    with folder:
        networks = _save_members(Path(folder.name), model, count, sparsity)
        loaded = load(folder.name)
    for batch in dict.fromkeys(map(settings.batch_or, _ENSEMBLE)):
        limits = _ENSEMBLE.get(batch, NO_LIMITS)
        images = torch.randint(256, (batch, *CIFAR), dtype=torch.uint8)
        (x,) = loaded.batches(images, batch)
        dense = dense_sides(make_network(model)[0], x)
        ours = {"our dense": member_side(model, 0.0, x)}
        sides = {"ensemble": _ensemble_side(loaded, networks, images), **ours, **dense}
        if asked is not None:
            first = Ensemble(loaded.tickets[:1])
            sides["member"] = _ensemble_side(first, networks[:1], images)
        timings = interleave(sides, settings.repeats)
        for others, whose in ((dense, "in PyTorch"), (ours, "compiled by us")):
            yield compare(
                f"predict_proba of {count} sparse members / ONE dense network {whose} "
                f"({model}, batch {batch}, S={sparsity})",
                versus(timings, "ensemble", others),
                limits if others is dense else NO_LIMITS,
            )
        if asked is not None:
            mean = sum(m * n for m, n in enumerate(asked, start=1)) / sum(asked)
            yield compare(
                f"{count} members asked in turn, {mean:.2f} a sample as {settings.record} says / "
                f"ONE dense network in PyTorch ({model}, batch {batch}, S={sparsity})",
                versus(timings, "member", dense),
                factor=mean,
            )


def pruned(settings: Settings) -> Iterator[Ratio | str]:
    """Networks pruned by PyTorch's own tools, against themselves elsewhere, where zeros cost."""
    models = [settings.model_or(_MODEL)] if settings.model or settings.small else list(_PRUNED)
    for model in models:
        x = torch.randn(settings.batch_or(16), *_PRUNED.get(model, CIFAR))
        network, _ = make_network(model, shape=tuple(x.shape[1:]))
        rivals, absent = _rivals(settings, network, x, list(RIVALS))
        yield from absent
        ours = {f"S={amount:g}": _pruned_side(network, amount, x) for amount in _AMOUNTS}
        rivals |= dense_sides(copy.deepcopy(network), x)  # which changes it
        timings = interleave({**ours, **rivals}, settings.repeats, pause=_PAUSE_SECONDS)
        plain = [name for name in rivals if name.startswith("PyTorch")]
        others = [[name] for name in rivals if name not in plain]
        for side in ours:
            for other in (plain, *others):
                yield compare(
                    f"a pruned network, ft.compile / elsewhere ({model}, batch {len(x)}, {side})",
                    versus(timings, side, other),
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
    others, absent = _rivals(settings, network, x, rivals)
    yield from absent
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


def _rivals(
    settings: Settings, network: nn.Module, x: Tensor, names: Sequence[str]
) -> tuple[dict[str, Predict], list[str]]:
    """The rivals that are here, by name, and for each that is not a line that says why."""
    found, absent = {}, []
    for name in names:
        try:
            predict = RIVALS[name](network, x, settings.threads)
        except AbsentError as error:
            absent.append(f"{name} is left out: {error}")
            continue
        found[name] = checked(name, predict, network, x)
    return found, absent


# ---- the sides


def make_network(
    model: str, sparsity: float = 0.0, shape: tuple[int, ...] = CIFAR, seed: int = 0
) -> tuple[nn.Module, Topology]:
    """Builds a network, ready to predict, and its topology; a dense one has none."""
    torch.manual_seed(seed)
    network = create_model(model, shape, 10)
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
            network(torch.randn(8, *shape))
    return network.eval().requires_grad_(False), topology


def member_side(model: str, sparsity: float, x: Tensor) -> Predict:
    """A sparse network, compiled for prediction; raises if it can't be, or predicts otherwise."""
    network, topology = make_network(model, sparsity)
    compiled = compile_network(network, topology)
    if compiled is network:
        raise FreeTicketsError(f"{model} can't be compiled: are the sparse kernels built?")
    return checked("the compiled member", lambda: compiled(x), network, x)


def _save_members(folder: Path, model: str, count: int, sparsity: float) -> list[nn.Module]:
    """Saves an ensemble as training does, and returns its networks."""
    info: dict[str, Any] = {"model": model, "model_options": {}, "combine": RULES[0]}
    info |= {"classes": list("0123456789"), "input_shape": CIFAR}
    info |= {"mean": [0.5] * 3, "std": [0.25] * 3}
    networks, tickets = [], []
    for seed in range(count):
        network, topology = make_network(model, sparsity, seed=seed)
        networks.append(network)
        tickets.append(Ticket.of(network.state_dict(), topology, info))
    Ensemble(tickets).save(folder)
    return networks


def _ensemble_side(loaded: Ensemble, networks: Sequence[nn.Module], images: Tensor) -> Predict:
    """What a user calls; the second call compiles where few samples wait for one."""
    size = len(images)

    def predict() -> Tensor:
        return torch.from_numpy(loaded.predict_proba(images, size))

    (x,) = loaded.batches(images, size)
    with torch.no_grad():
        wanted = torch.stack([each(x).double().softmax(-1) for each in networks]).mean(0)
    predict()
    return checked("the ensemble", predict, lambda _: wanted, x)


def _asked(record: Path) -> Sequence[int]:
    """How many answers a cascade took of 1, 2, ... members, as an evaluation has measured."""
    adjusted = Evaluation.load(record).adjusted
    if adjusted is None or not adjusted.asked:
        raise FreeTicketsError(f"{record} knows no cascade: run 'freetickets evaluate --cascade'")
    return adjusted.asked


def _pruned_side(network: nn.Module, amount: float, x: Tensor) -> Predict:
    """A network that is pruned layer by layer, and made fast."""
    pruned = copy.deepcopy(network)
    for module in pruned.modules() if amount else ():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            prune.l1_unstructured(module, "weight", amount)  # type: ignore[no-untyped-call]
    compiled = compile_pruned(pruned, x)
    return checked("the pruned network", torch.no_grad()(partial(compiled, x)), pruned, x)


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


def checked(name: str, predict: Predict, network: Callable[[Tensor], Tensor], x: Tensor) -> Predict:
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
