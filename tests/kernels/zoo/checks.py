"""Whether compiled and sparsely trained networks compute what plain ones do, and how exactly."""

import copy
import random
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor, nn

from freetickets import Sparsifier
from freetickets.errors import FreeTicketsError
from freetickets.kernels import compiler, fused, inference, ops, winograd
from freetickets.kernels.inference import compile_network
from freetickets.kernels.layers import SparseLayer

from .judge import Judge, doubled, leaves, trembling

Compiler = Callable[[nn.Module, dict[str, Tensor]], nn.Module]

BATCHES = (1, 2, 3, 5, 8, 9, 16, 17)
TRAINED_BATCHES = (1, 2, 9, 17)
PREDICTED_BATCHES = (1, 3, 8, 17)
_THREADS, _CALLS = 4, 3
_THREADED_BATCHES = (1, 4, 8, 11, 17)  # among them some that no one asked for before


# ---- prediction


@torch.no_grad()
def make_sparse(network, density=0.3):
    """Sets most weights to zero; returns where they are not."""
    topology: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, module in network.named_modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)) and id(module.weight) not in seen:
            seen.add(id(module.weight))
            mask = torch.rand(module.weight.shape) < density
            mask.view(-1)[0] = True
            module.weight *= mask
            topology[f"{name}.weight" if name else "weight"] = mask
    return topology


@torch.no_grad()
def predict(network, inputs):
    """What a network returns, and what it leaves of its inputs."""
    inputs = copy.deepcopy(inputs)
    output = network(*inputs)
    return leaves(output, "output") | leaves(inputs, "input")


def _judge_of_predictions(network, exact, inputs):
    def compute(tremor):
        with trembling(exact, tremor):
            return predict(exact, doubled(inputs))

    return Judge(predict(network, inputs), compute)


@contextmanager
def compiled_for_good(way):
    """Has compiled networks run as such, their layers in the way that the function says.

    Otherwise networks as small as these may not be compiled at all. That one falls back is no
    mistake as such, so its warning is none here.
    """

    def convolution(work, rows):
        chosen = way(str(work))
        if chosen == "winograd" and not rows and winograd.suits(work.geometry):
            return ops.FORWARD << ops.WINOGRAD, 1.0
        return (ops.FORWARD if chosen == "dense" else 0), 1.0

    def linear(*numbers):
        return (2.0 if way(str(numbers)) == "dense" else 0.5), 1.0, 0.0

    with (
        warnings.catch_warnings(),
        mock.patch.object(fused, "predicting_way", convolution),
        mock.patch.object(fused, "linear_times", linear),
        mock.patch.object(compiler, "pays", return_value=True),
    ):
        warnings.simplefilter("ignore", UserWarning)
        yield


def sparse(key):
    """Has all layers skip their zeros."""
    return "sparse"


def mixed(key):
    """Has layers run in all ways, the same ones always in the same."""
    return ("dense", "winograd", "sparse")[zlib.crc32(key.encode()) % 3]


def fallbacks(compiled, network):
    """Why a compiled network uses the plain one, each reason once."""
    if compiled is network:
        return ["not compiled at all"]
    return sorted(set(getattr(compiled, "fallbacks", {}).values()))


def compare_compiled(
    network, draw, *, compiler=compile_network, batches=BATCHES, way=sparse, threads=True
):
    """Compares a network, which gets sparse weights, with its compiled self.

    Args:
        network: The network.
        draw: Makes inputs, from a number of samples and a seed.
        compiler: Compiles it.
        batches: Numbers of samples; each number is tried twice, since the first time is special.
        way: In which way each layer is to run.
        threads: Whether it is also called by several threads at once.

    Returns:
        What is wrong, and why the plain network was used, if it was; both in words.
    """
    topology = make_sparse(network.eval())
    exact = copy.deepcopy(network).double()
    before = copy.deepcopy(network.state_dict())
    faults: list[str] = []

    def judge(inputs, found, what):
        judged = _judge_of_predictions(network, exact, inputs)
        faults.extend(f"{what}: {fault}" for fault in judged.faults(found))

    # Both ways to compare the first answer with the plain network's are tried.
    with compiled_for_good(way), mock.patch.object(inference, "_MANY", 9):
        compiled = compiler(network, topology)
        for samples in batches:
            for call in (1, 2):
                inputs = draw(samples, call)
                judge(inputs, predict(compiled, inputs), f"{samples} samples, call {call}")
        if threads:
            numbers, seeds = random.Random(0), range(10, 10 + _THREADS * _CALLS)
            jobs = [draw(numbers.choice(_THREADED_BATCHES), seed) for seed in seeds]
            with ThreadPoolExecutor(_THREADS) as pool:
                answers = list(pool.map(lambda inputs: predict(compiled, inputs), jobs))
            for inputs, found in zip(jobs, answers, strict=True):
                judge(inputs, found, f"one of {_THREADS} threads")
    for name, tensor in network.state_dict().items():
        if not torch.equal(tensor, before[name]):
            faults.append(f"the network's own {name} was changed")
    return faults, fallbacks(compiled, network)


# ---- training


def compare_trained(build, draw, *, batches=TRAINED_BATCHES, predicted=PREDICTED_BATCHES):
    """Compares sparse training with the masked kind.

    Args:
        build: Makes the network, the same each time.
        draw: Makes inputs, from a number of samples and a seed.
        batches: Numbers of samples of training steps.
        predicted: Numbers of samples of predictions afterwards.

    Returns:
        What is wrong, in words; None if nothing in the network can be sparse.
    """
    masked, reference = sparsified(build, "masked")
    try:
        sparse, sparsifier = sparsified(build, "sparse")
    except FreeTicketsError as error:
        if "no layer can be sparse" in str(error):
            return None
        raise
    faults: list[str] = []
    for samples in batches:
        inputs = draw(samples, samples)
        masked.zero_grad()
        sparse.zero_grad()
        judge = _judge_of_training(masked, reference, inputs)
        found = step(sparse, sparsifier, inputs)
        faults += [f"training with {samples} samples: {fault}" for fault in judge.faults(found)]
    masked.eval()
    sparse.eval()
    # Statistics that differ by rounding are no matter of the predictions.
    sparse.load_state_dict(masked.state_dict())
    exact = copy.deepcopy(masked).double()
    for samples in predicted:
        inputs = draw(samples, 50 + samples)
        judge = _judge_of_predictions(masked, exact, inputs)
        found = predict(sparse, inputs)
        faults += [f"prediction of {samples} samples: {fault}" for fault in judge.faults(found)]
    return faults


def _judge_of_training(network, sparsifier, inputs):
    before = copy.deepcopy(network)

    def compute(tremor):
        with trembling(copy.deepcopy(before).double(), tremor) as exact:
            return step(exact, sparsifier, doubled(inputs))

    return Judge(step(network, sparsifier, inputs), compute)


def sparsified(build, backend, *, torch_seed=0, **options):
    """A network of which 40 % of the weights are active, and its sparsifier."""
    torch.manual_seed(torch_seed)
    network = build()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    options |= {"distribution": "uniform", "exploration": None, "backend": backend}
    return network.train(), Sparsifier(network, optimizer, 0.6, **options)


def step(network, sparsifier, inputs):
    """One forward and backward pass in training: all that can be seen of it."""
    inputs = copy.deepcopy(inputs)
    output = network(*inputs)
    results = leaves(output, "output") | leaves(inputs, "input")
    results["loss"] = loss = _loss(results)
    loss.backward()
    results = {n: v.detach() if isinstance(v, Tensor) else v for n, v in results.items()}
    results |= {f"gradient of {n}": g for n, g in gradients(network, sparsifier).items()}
    others = {*sparsifier.topology, *dict(network.named_parameters())}
    buffers = {n: buffer for n, buffer in network.state_dict().items() if n not in others}
    return results | {f"buffer {name}": buffer.clone() for name, buffer in buffers.items()}


def _loss(results):
    """Some number that depends on all of the output, in another way on each place."""
    total = torch.zeros(())
    for name, value in results.items():
        if isinstance(value, Tensor) and value.requires_grad:
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            noise = torch.randn(value.shape, generator=generator).to(value.dtype)
            total = total + (noise * value + value.square()).mean()
    return total


def gradients(network, sparsifier):
    """All gradients, those of sparse weights at their active places."""
    found = {}
    for module_name, module in network.named_modules():
        for own_name, parameter in module.named_parameters(recurse=False):
            if isinstance(module, SparseLayer) and own_name == "values":
                own_name = "weight"
            name = f"{module_name}.{own_name}" if module_name else own_name
            mask, gradient = sparsifier.topology.get(name), parameter.grad
            is_whole = gradient is None or mask is None or gradient.dim() == 1
            found[name] = gradient if is_whole else gradient[mask]
    return found
