"""Events: what happens at the end of a phase, beyond training.

An event is a frozen data class, here or anywhere; trainer, timeline and ledger know none by name.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ..training.session import Stage


@dataclass(frozen=True)
class Prices:
    """What an event's cost may depend on."""

    forward_flops: float  # of one sample, through the network as it is in this phase
    dense_flops: float  # of one sample, through the dense network
    samples: int  # in an epoch
    batch_size: int
    grows_by_gradient: bool  # whether an exploration needs the gradients of all weights


@dataclass(frozen=True)
class Cost:
    """FLOPs of an event: of its own, and of gradients that only growth looks at."""

    flops: float = 0.0
    growth_flops: float = 0.0


class Event:
    """What happens at the end of a phase."""

    event: ClassVar[str]  # its name in the log
    tickets: ClassVar[int] = 0  # that it collects
    needs_gradients: ClassVar[bool] = False  # of all weights, in the phase's last step
    restarts_exploration: ClassVar[bool] = False  # whether a schedule of rates starts again
    makes_sparse: ClassVar[bool] = False  # whether it prunes for good: all weights are held so long
    selects_best = property(lambda self: False)  # whether it wants the phase's best network
    remembers = property(lambda self: ())  # names of networks that it keeps for later runs

    def happen(self, stage: "Stage") -> str | None:
        """Does it, and may return a line for people.

        It must depend on nothing but the stage and the event's own fields, and keep what it needs
        later on the stage's shelf: then a run that was killed ends as if it had not been.
        """
        raise NotImplementedError

    def cost(self, prices: Prices) -> Cost:
        """What it costs."""
        return Cost()


@dataclass(frozen=True)
class Collect(Event):
    """Saves a ticket: the network as it is ("last"), or the phase's best on validation data."""

    event = "collect"
    tickets = 1

    select: str = "last"

    selects_best = property(lambda self: self.select == "best")

    def happen(self, stage: "Stage") -> str | None:
        """Collects."""
        return stage.collect(stage.best() if self.selects_best else stage.take())


@dataclass(frozen=True)
class Escape(Event):
    """Explores once at a large rate (q), to leave the basin of the ticket just collected."""

    event = "escape"
    needs_gradients = restarts_exploration = True

    rate: float = 0.8

    def happen(self, stage: "Stage") -> str | None:
        """Explores; a dense network has no topology to leave."""
        stage.session.escape(self.rate)
        return f"escape: {self.rate:.0%} of the active weights pruned, as many grown"

    def cost(self, prices: Prices) -> Cost:
        """The gradients of one batch for all weights, if growth looks at them."""
        missing = (prices.dense_flops - prices.forward_flops) * prices.batch_size
        return Cost(growth_flops=missing if prices.grows_by_gradient else 0.0)


@dataclass(frozen=True)
class Prune(Event):
    """Prunes a dense network to a sparsity, by the magnitudes of all its weights together."""

    event = "prune"
    makes_sparse = True

    sparsity: float = 0.8

    def happen(self, stage: "Stage") -> str | None:
        """Prunes."""
        stage.session.prune(self.sparsity, stage.step)
        return f"pruned to a sparsity of {self.sparsity:g}"


@dataclass(frozen=True)
class Remember(Event):
    """Keeps the network as it is, weights and topology, for later runs to start from."""

    event = "remember"

    name: str

    remembers = property(lambda self: (self.name,))

    def happen(self, stage: "Stage") -> str | None:
        """Remembers."""
        stage.remember(self.name, stage.take())
        return None
