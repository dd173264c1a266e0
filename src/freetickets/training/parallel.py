"""What a network is trained on: a device, in a precision, by one process or by several together."""

import atexit
import hashlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..device import find_device
from ..errors import FreeTicketsError
from ..sparsity.topology import pack_mask

T = TypeVar("T")

TIMEOUT = timedelta(minutes=10)  # of a wait for the others: longer than any checkpoint takes
# PyTorch has no exception of its own for this: what gloo and NCCL say when a process has gone.
_WORDS_OF_LOSS = ("gloo", "nccl", "connection", "peer", "pair closure", "timed out", "timeout")


class Ranks:
    """The processes of a run, which torchrun has started and which, if several, have met.

    Whatever one of them calls here, all must call, in the same order. Alone, it costs nothing.
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
        leads = _local_rank() == 0
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
        """Gives all ranks the first one's buffers, such as BatchNorm's statistics of its slices."""
        if self.world > 1:
            ignored = _unsaved_buffers(network)
            for name, buffer in network.named_buffers():
                if name not in ignored:
                    distributed.broadcast(buffer, src=0)

    def check_same(self, topology: Mapping[str, Tensor]) -> None:
        """Raises, on all ranks, unless they all have this topology."""
        if self.world == 1 or not topology:
            return
        packed = [pack_mask(mask).numpy().tobytes() for mask in topology.values()]
        digests = [hashlib.blake2b(each, digest_size=8).digest() for each in packed]
        mine = torch.tensor([int.from_bytes(each, "big", signed=True) for each in digests])
        theirs = [torch.empty_like(mine) for _ in range(self.world)]
        distributed.all_gather(theirs, mine, group=self._cpu)
        for position, name in enumerate(topology):
            others = [r for r in range(self.world) if theirs[r][position] != theirs[0][position]]
            if others:
                raise FreeTicketsError(
                    f"rank {', '.join(map(str, others))} and rank 0 have different topologies in "
                    f"{name!r}: train on machines of one kind, with the same software and scores"
                )


class Compute:
    """Forward passes, updates and data-parallel wrappers as device, precision and ranks ask.

    `precision` is that of what need not be in single precision; None for nothing.
    """

    def __init__(
        self,
        device: torch.device | None = None,
        precision: torch.dtype | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.device = device or torch.device("cpu")
        self.ranks = ranks or Ranks()
        self._precision = precision
        # Small gradients of float16 would be zero. Scaling costs a wait for the device at each
        # step, and bfloat16, which reaches as far as single precision, does without.
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=precision is torch.float16)

    def wrap(self, network: nn.Module) -> nn.Module:
        """Returns what to call in training: it averages gradients over the ranks, if several."""
        if self.ranks.world == 1:
            return network
        # What each rank computes by itself is not to be sent at each step.
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            network, sorted(_unsaved_buffers(network))
        )
        on_cpu = self.device.type == "cpu"
        wrapper = DistributedDataParallel(network, device_ids=None if on_cpu else [self.device])
        if on_cpu:
            # A resumed run is to end with the same bits, but the wrapper packs gradients anew after
            # its first step; with more than two ranks the last bit of a sum depends on the pack.
            # A lambda: a hook is given a state, too, and this one has none.
            wrapper.register_comm_hook(None, lambda _, bucket: _reduce_each(bucket))
        return wrapper

    def autocast(self) -> AbstractContextManager[Any]:
        """Within, a forward pass computes in the chosen precision where that is safe."""
        chosen = self._precision
        return torch.autocast(self.device.type, chosen, enabled=chosen is not None)

    def single(self, output: Tensor) -> Tensor:
        """Returns what a forward pass gave as it would be without another precision."""
        return output if self._precision is None else output.float()

    def update(self, loss: Tensor, optimizer: Optimizer) -> None:
        """Takes a step along the gradients of a loss."""
        optimizer.zero_grad()
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(optimizer)
        self._scaler.update()

    def state_dict(self) -> dict[str, Any]:
        """Returns what a resumed run needs."""
        return self._scaler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a `state_dict`."""
        if state:
            self._scaler.load_state_dict(dict(state))


def make_compute(device: str, amp: bool) -> Compute:
    """Chooses the device, and 16 bits for what is safe in them (`amp`); meets other processes."""
    on_gpus = distributed.is_torchelastic_launched() and torch.cuda.is_available()
    if on_gpus and device in ("auto", "cuda"):
        device = f"cuda:{_local_rank()}"  # from the start: a first touch takes memory of a device
    found = find_device(device)
    if on_gpus and found.type == "cuda":
        torch.cuda.set_device(found)  # where NCCL keeps its own memory
    sixteen = torch.float16 if found.type == "cuda" else torch.bfloat16
    return Compute(found, sixteen if amp else None, meet(found))


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
            line = str(error).partition("\n")[0]
            raise FreeTicketsError(f"rank {rank()} can't reach the other ranks: {line}") from error
        if backend == "nccl":  # which complains where it is left open
            atexit.register(distributed.destroy_process_group)
    return Ranks(rank(), world)


def rank() -> int:
    """The number that torchrun has given to this process; 0 without torchrun."""
    return int(os.environ.get("RANK", "0")) if distributed.is_torchelastic_launched() else 0


def _local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def release(model: nn.Module) -> None:
    """Has a data-parallel wrapper let go of its network, so that another can take it."""
    if isinstance(model, DistributedDataParallel):
        model._remove_autograd_hooks()  # type: ignore[no-untyped-call]


@contextmanager
def lost_ranks_in_one_line() -> Iterator[None]:
    """Turns what PyTorch raises when another process has died into one line."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] *", "", str(error).partition("\n")[0])[:80]
        said = any(word in str(error).lower() for word in _WORDS_OF_LOSS)
        said = said or isinstance(error, distributed.DistError)
        if not (said and distributed.is_initialized()):
            raise
        if threading.current_thread() is threading.main_thread():
            # torchrun ends the ranks that are left; they have little to do, and say why first.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise FreeTicketsError(
            f"rank {rank()} lost contact with another rank, which may have died ({reason}): run "
            "the same command again to continue from the last checkpoint"
        ) from error


def _unsaved_buffers(network: nn.Module) -> set[str]:
    """The buffers that no `state_dict` has: each rank computes them, from its topology say."""
    return {name for name, _ in network.named_buffers()} - network.state_dict().keys()


def _reduce_each(bucket: Any) -> Future[Tensor]:
    world = distributed.get_world_size()
    works = [distributed.all_reduce(g.div_(world), async_op=True) for g in bucket.gradients()]
    done = torch.futures.collect_all([work.get_future() for work in works])
    return done.then(lambda _: bucket.buffer())
