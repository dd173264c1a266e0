"""The compiled kernels: where they are, how they are called, on whose threads they run."""

import contextlib
import ctypes
import functools
import math
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from ..errors import FreeTicketsError


class LayerStruct(ctypes.Structure):
    """A convolution, as the kernels see it.

    All numbers have 64 bits: of those that do not fit, ctypes would pass on the lower part.
    """

    _fields_ = [
        (name, c_int64)
        for name in (
            "inputs", "outputs", "kernel_h", "kernel_w",
            "stride_h", "stride_w", "pad_h", "pad_w",
        )
    ]  # fmt: skip


class MapsStruct(ctypes.Structure):
    """The maps that a layer reads: groups of `lanes` samples, the samples innermost."""

    _fields_ = [(name, c_int64) for name in ("groups", "lanes", "height", "width")]


class NormStruct(ctypes.Structure):
    """The same memory, as BatchNorm sees it."""

    _fields_ = [(name, c_int64) for name in ("batch", "groups", "lanes", "channels", "positions")]


class PoolStruct(ctypes.Structure):
    """The same memory, as max-pooling sees it, and its windows."""

    _fields_ = [
        (name, c_int64)
        for name in ("groups", "lanes", "channels", "height", "width", "window_h", "window_w")
    ]


class HaloStruct(ctypes.Structure):
    """The same memory as blocks of images, and the border that each block gets: see `blocks`."""

    _fields_ = [
        (name, c_int64)
        for name in (
            "groups", "lanes", "channels", "height", "width", "grid_h", "grid_w",
            "top", "bottom", "left", "right",
        )
    ]  # fmt: skip


class Geometry(NamedTuple):
    """What a sparse layer is, but for its non-zeros.

    A linear layer is a 1x1 convolution.
    """

    shape: tuple[int, int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Returns the size of the maps that the layer makes of maps of this size."""
        return (
            (height + 2 * self.padding[0] - self.shape[2]) // self.stride[0] + 1,
            (width + 2 * self.padding[1] - self.shape[3]) // self.stride[1] + 1,
        )

    @property
    def supported(self) -> bool:
        """Whether the kernels can do it: their tables have a limited size."""
        return max(self.shape[2:]) <= 64 and max(self.stride) <= 8


@functools.cache
def layer_struct(geometry: Geometry) -> LayerStruct:
    """A layer, as the kernels take it."""
    outputs, inputs, kernel_h, kernel_w = geometry.shape
    return LayerStruct(inputs, outputs, kernel_h, kernel_w, *geometry.stride, *geometry.padding)


def maps_struct(x: Tensor) -> MapsStruct:
    """Maps, as the kernels take them."""
    groups, _, height, width, lanes = x.shape
    return MapsStruct(groups, lanes, height, width)


# What a letter of a signature stands for.
_TYPES = {
    "s": c_char_p, "p": c_void_p, "i": c_int, "n": c_int64, "f": c_float, "N": POINTER(c_int64),
    "L": POINTER(LayerStruct), "M": POINTER(MapsStruct), "B": POINTER(NormStruct),
    "P": POINTER(PoolStruct), "H": POINTER(HaloStruct), "-": None,
}  # fmt: skip
# Of each function in api.h: its result, and its arguments.
_SIGNATURES = {
    "ft_interface": "i", "ft_instruction_set": "s", "ft_select": "i s", "ft_lanes": "i",
    "ft_use_openmp": "- pp", "ft_new_tensor": "p Ni", "ft_release_memory": "-",
    "ft_bound": "n ini",
    "ft_plan_size": "n Ln", "ft_plan": "s Lpnpn",
    "ft_prepare": "s LMppnpi", "ft_forward": "s LMpppnppi", "ft_forward_fused": "s LMpppnppippipi",
    "ft_input_gradient": "s LMpppnpi", "ft_weight_gradient": "s LMpppnpi",
    "ft_linear": "s Lnpppnpipi", "ft_linear_backward": "s Lnpppppnpppi",
    "ft_winograd_size": "n Li", "ft_winograd_weights": "s Lpipi",
    "ft_winograd_forward": "s LMppppippipi", "ft_winograd_gradient": "s LMpppi",
    "ft_normalize": "s Bpppfipppi", "ft_scale": "s Bpppppfipi",
    "ft_normalize_backward": "s Bppppppfiipppi",
    "ft_max_pool": "s Ppppi", "ft_max_pool_backward": "s Ppppi",
    "ft_to_groups": "s Bppi", "ft_from_groups": "s Bppi",
    "ft_halo": "s Hpppipi",
    "ft_take": "s pnpnppi", "ft_put": "s ppnpni",
}  # fmt: skip

_INTERFACE = 10  # what `ft_interface` must return: see api.h
_OUT_OF_MEMORY = b"out of memory"

# Weights and maps; plans and places; prepared entries; places in windows.
_DTYPES = (torch.float32, torch.int32, torch.int64, torch.uint8)

_LARGE = 1 << 19  # floats

_lanes = 0  # see `lanes`

_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, (c_void_p, c_char_p, c_void_p)


def library_path() -> Path | None:
    """Where the compiled kernels lie; None if they were not built."""
    found = sorted(Path(__file__).parent.glob("_native*.[sd][oyl]*"))
    return found[0] if found else None


def available() -> bool:
    """Whether the sparse kernels can run here."""
    return library_path() is not None


@functools.cache
def native() -> ctypes.CDLL:
    """Loads the compiled kernels.

    Raises:
        FreeTicketsError: They were not built, or from other sources.
    """
    path = library_path()
    if path is None:
        raise FreeTicketsError(
            "the sparse kernels are not built (no compiler at installation?): install a C++ "
            "compiler and reinstall freetickets, or use backend='masked'"
        )
    library = ctypes.CDLL(str(path))
    if not hasattr(library, "ft_interface") or library.ft_interface() != _INTERFACE:
        raise FreeTicketsError(
            "the compiled kernels belong to another version of freetickets: reinstall it"
        )
    for name, signature in _SIGNATURES.items():
        result, _, arguments = signature.partition(" ")
        function = getattr(library, name)
        function.restype = _TYPES[result]
        function.argtypes = [_TYPES[letter] for letter in arguments]
    if (runtime := openmp()) is not None:
        entries = (runtime.GOMP_parallel, runtime.omp_get_thread_num)
        library.ft_use_openmp(*(ctypes.cast(each, c_void_p) for each in entries))
    wanted = os.environ.get("FREETICKETS_INSTRUCTION_SET")
    if wanted and not library.ft_select(wanted.encode()):
        raise FreeTicketsError(
            f"FREETICKETS_INSTRUCTION_SET is {wanted!r}: this machine or build has no such kernels "
            "(baseline, avx2, avx512)"
        )
    global _lanes
    _lanes = int(library.ft_lanes())
    return library


def openmp() -> ctypes.CDLL | None:
    """What finds the functions of the OpenMP runtime that PyTorch itself has loaded.

    Its threads do our work too: a second pool would spin against it on the same cores. A symbol
    is looked up in a library and in what it was linked with, so this finds PyTorch's own runtime,
    whatever it is called. Without one, the kernels start threads that end with the call.
    """
    folder = Path(torch.__file__).parent / "lib"
    for path in sorted(folder.glob("libtorch_cpu.*")):
        with contextlib.suppress(OSError):
            found = ctypes.CDLL(str(path))
            if hasattr(found, "GOMP_parallel") and hasattr(found, "omp_get_thread_num"):
                return found
    return None


def instruction_set() -> str:
    """The instruction set that the kernels use here."""
    return str(native().ft_instruction_set().decode())


def select_instruction_set(name: str) -> None:
    """Uses "baseline", "avx2" or "avx512" instead of the best that there is (for tests)."""
    global _lanes
    if not native().ft_select(name.encode()):
        raise FreeTicketsError(f"this machine or build has no kernels for {name!r}")
    _lanes = int(native().ft_lanes())


def lanes() -> int:
    """The samples of a group that suit the instruction set."""
    # A number of Python's, as soon as there is a plan: `torch.compile` can't look into the library.
    return _lanes or int(native().ft_lanes())


def call(function: str, *arguments: object) -> None:
    """Calls a kernel; tensors are passed by the address of their first element.

    They are held until it returns: a temporary one whose address alone was passed would be gone.

    Raises:
        FreeTicketsError: The kernels would take a tensor for something else than it is, or can't
            work with the numbers that they were given.
        MemoryError: There is no memory for what they need besides the tensors.
    """
    plain = [_address(a) if hasattr(type(a), "__torch_function__") else a for a in arguments]
    reason: bytes | None = getattr(native(), function)(*plain)
    if reason is not None:
        raise _failure(function, reason, arguments)


def compute(function: str, geometry: Geometry, maps: Tensor, *arguments: object) -> None:
    """Calls a kernel of a layer for maps of this size, on as many threads as PyTorch has."""
    given = (layer_struct(geometry), maps_struct(maps), *arguments)
    call(function, *given, torch.get_num_threads())


def _failure(function: str, reason: bytes, arguments: tuple[object, ...]) -> Exception:
    if reason == _OUT_OF_MEMORY:
        return MemoryError(f"{function}: out of memory in the sparse kernels")
    numbers = [
        ", ".join(f"{name} {getattr(given, name)}" for name, *_ in given._fields_)
        for given in arguments
        if isinstance(given, ctypes.Structure)
    ]
    return FreeTicketsError(f"{function}: {reason.decode()} ({'; '.join(numbers)})")


def _address(tensor: Any) -> int:
    if not isinstance(tensor, Tensor):
        raise FreeTicketsError(f"the sparse kernels take tensors, not a {type(tensor).__name__}")
    if tensor.dtype not in _DTYPES or tensor.device.type != "cpu":
        raise FreeTicketsError(
            f"the sparse kernels take float32 on the CPU, not {tensor.dtype} on {tensor.device}: "
            "detach() the sparsifier before the network is converted, or use backend='masked'"
        )
    return tensor.data_ptr()


def ready(tensor: Tensor) -> Tensor:
    """The tensor in the one form that the kernels take: contiguous and aligned."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 64 == 0 else tensor.clone()


def empty(*shape: int) -> Tensor:
    """New floats; large tensors take memory that others have given back (see memory.cpp)."""
    if math.prod(shape) < _LARGE:
        return torch.empty(shape)
    managed = native().ft_new_tensor((c_int64 * len(shape))(*shape), len(shape))
    if managed is None:
        return torch.empty(shape)  # which says that there is no memory
    return from_dlpack(_capsule(managed, b"dltensor", None))


def release_memory() -> None:
    """Gives the system back what large tensors have left."""
    if native.cache_info().currsize:
        native().ft_release_memory()
