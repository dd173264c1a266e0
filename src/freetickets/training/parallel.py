"""Several processes that train one network together, each on its slice of every batch."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from ..errors import FreeTicketsError
from ..sparsity.topology import pack_mask

T = TypeVar("T")

# How long a process waits for the others before it gives up: longer than any checkpoint takes.
TIMEOUT = timedelta(minutes=10)

# PyTorch has no exception of its own for this: what gloo and NCCL say when a process has gone.
_WORDS_OF_LOSS = ("gloo", "nccl", "connection", "peer", "pair closure", "timed out", "timeout")


class Ranks:
    """The processes of a run, which torchrun has started; alone, nothing here costs anything.

    Whatever one of them calls here, all must call, in the same order.

    Args:
        rank: The number of this process.
        world: How many there are; if several, they have met.
    """

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world
        # Decisions are agreed on between CPUs: an accelerator would have to be waited for.
        self._cpu = None
        if self.world > 1 and distributed.get_backend() != "gloo":
            self._cpu = distributed.new_group(backend="gloo", timeout=TIMEOUT)

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether a flag is set on any rank."""
        if self.world == 1:
            return flag
        flags = torch.tensor([int(flag)])
        distributed.all_reduce(flags, distributed.ReduceOp.MAX, group=self._cpu)
        return bool(flags)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks of a tensor on the device."""
        if self.world > 1:
            values = values.clone()
            distributed.all_reduce(values)
        return values

    def from_first(self, work: Callable[[], T]) -> T:
        """Does some work on the first rank only, and returns its result, or its error, on all."""
        if self.world == 1:
            return work()
        answer: list[Any] = [None, None]
        failure: FreeTicketsError | None = None
        if self.first:
            try:
                answer[0] = work()
            except FreeTicketsError as error:
                failure, answer[1] = error, str(error)
        distributed.broadcast_object_list(answer, src=0, group=self._cpu)
        if answer[1] is not None:
            raise failure or FreeTicketsError(answer[1])
        return cast(T, answer[0])

    @contextmanager
    def one_before_the_others(self) -> Iterator[None]:
        """Lets one rank of each machine do some work before the others, which find it done."""
        if self.world == 1:
            yield
            return
        # However long it takes: data may have to be fetched.
        group = distributed.new_group(backend="gloo", timeout=timedelta(days=30))
        leads = local_rank() == 0
        if not leads:
            distributed.barrier(group)
        yield
        if leads:
            distributed.barrier(group)
        distributed.destroy_process_group(group)

    def share_network(self, network: nn.Module) -> None:
        """Gives all ranks the first one's parameters and buffers."""
        if self.world > 1:
            for tensor in (*network.parameters(), *network.buffers()):
                distributed.broadcast(tensor.detach(), src=0)

    def share_buffers(self, network: nn.Module) -> None:
        """Gives all ranks the first one's buffers: BatchNorm's statistics are those of its slices.

        The data-parallel wrapper does the same before each training step.
        """
        if self.world > 1:
            ignored = unsaved_buffers(network)
            for name, buffer in network.named_buffers():
                if name not in ignored:
                    distributed.broadcast(buffer, src=0)

    def check_same(self, topology: Mapping[str, Tensor]) -> None:
        """Raises, on all ranks, unless they all have this topology."""
        if self.world == 1 or not topology:
            return
        mine = torch.tensor([_fingerprint(mask) for mask in topology.values()])
        theirs = [torch.empty_like(mine) for _ in range(self.world)]
        distributed.all_gather(theirs, mine, group=self._cpu)
        for position, name in enumerate(topology):
            others = [r for r in range(self.world) if theirs[r][position] != theirs[0][position]]
            if others:
                raise FreeTicketsError(
                    f"rank {', '.join(map(str, others))} and rank 0 have different topologies in "
                    f"{name!r}: train on machines of one kind, with the same software, and with "
                    "scores that are the same on all ranks"
                )


def unsaved_buffers(network: nn.Module) -> set[str]:
    """The buffers that no `state_dict` has: each rank computes them, from its topology say."""
    return {name for name, _ in network.named_buffers()} - network.state_dict().keys()


def ignore_unsaved_buffers(network: nn.Module) -> None:
    """Tells the data-parallel wrapper to come what not to send at each step."""
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
        network, sorted(unsaved_buffers(network))
    )


def reduce_one_by_one(wrapper: DistributedDataParallel) -> None:
    """Has gradients reduced parameter by parameter, so that a resumed run does it the same way.

    The wrapper packs them again after its first step; with more than two ranks, the order in which
    an element is summed, and so its last bit, would depend on where it lies in the pack.
    """
    # A lambda: PyTorch refuses annotations that are strings, as all are here.
    wrapper.register_comm_hook(None, lambda _, bucket: _reduce_each(bucket))


def release(model: nn.Module) -> None:
    """Has a data-parallel wrapper let go of its network, so that another can take it."""
    if isinstance(model, DistributedDataParallel):
        model._remove_autograd_hooks()  # type: ignore[no-untyped-call]


def _reduce_each(bucket: Any) -> Future[Tensor]:
    world = distributed.get_world_size()
    works = [
        distributed.all_reduce(gradient.div_(world), async_op=True)
        for gradient in bucket.gradients()
    ]
    done = torch.futures.collect_all([work.get_future() for work in works])
    return done.then(lambda _: bucket.buffer())


def check_synchronisable(device: torch.device) -> None:
    """Raises where PyTorch has no synchronised BatchNorm."""
    if device.type == "cpu":
        raise FreeTicketsError(
            "PyTorch synchronises BatchNorm on accelerators only: leave out --sync-batchnorm, or "
            "use another --device"
        )


def synchronise_norms(network: nn.Module) -> nn.Module:
    """Has BatchNorm normalise by the statistics of the whole batch, not of a rank's slice.

    Example:
        >>> network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        >>> type(synchronise_norms(network)[1]).__name__
        'SyncBatchNorm'
    """
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    return converted


def meet(device: torch.device) -> Ranks:
    """Meets the other processes that torchrun has started, if it has."""
    world = int(os.environ.get("WORLD_SIZE", "1")) if distributed.is_torchelastic_launched() else 1
    if world == 1:
        return Ranks()
    if not distributed.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        try:
            distributed.init_process_group(backend, timeout=TIMEOUT)
        except (RuntimeError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise FreeTicketsError(
                f"rank {rank()} can't reach the other ranks: {reason}"
            ) from error
        if backend == "nccl":  # which complains where it is left open
            atexit.register(distributed.destroy_process_group)
    return Ranks(rank(), world)


def rank() -> int:
    """The number that torchrun has given to this process; 0 without torchrun."""
    return int(os.environ.get("RANK", "0")) if distributed.is_torchelastic_launched() else 0


def local_rank() -> int:
    """The number that torchrun has given to this process among those of its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


@contextmanager
def lost_ranks_in_one_line() -> Iterator[None]:
    """Turns what PyTorch raises when another process has died into one line."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] *", "", str(error).partition("\n")[0])[:80]
        lost = isinstance(error, distributed.DistError) or any(
            word in str(error).lower() for word in _WORDS_OF_LOSS
        )
        if not (lost and distributed.is_initialized()):
            raise
        if threading.current_thread() is threading.main_thread():
            # torchrun ends the ranks that are left; they have little to do, and say why first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise FreeTicketsError(
            f"rank {rank()} lost contact with another rank, which may have died ({reason}): run "
            "the same command again to continue from the last checkpoint"
        ) from error


def _fingerprint(mask: Tensor) -> int:
    content = hashlib.blake2b(pack_mask(mask).numpy().tobytes(), digest_size=8)
    return int.from_bytes(content.digest(), "big", signed=True)
