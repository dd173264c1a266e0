"""What can be set of a benchmark, and what a measurement is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ..kernels.library import available, instruction_set
from .timing import Ratio


@dataclass(frozen=True)
class Settings:
    """How to measure.

    Attributes:
        repeats: How often each side runs.
        threads: How many threads each side has.
        batch: The samples of a batch, instead of those that the bars are meant for.
        model: The network, instead of the one that the bars are meant for.
        small: Whether everything is tiny, to see that it works; the ratios then mean nothing.
    """

    repeats: int
    threads: int
    batch: int | None = None
    model: str | None = None
    small: bool = False

    @property
    def few_repeats(self) -> int:
        """Repeats of what takes long."""
        return max(2, self.repeats // 5)

    def batch_or(self, default: int) -> int:
        """The samples of a batch."""
        return self.batch or (2 if self.small else default)

    def model_or(self, default: str) -> str:
        """The network."""
        return self.model or self.tiny(default)

    def tiny(self, model: str) -> str:
        """The network, or a tiny one of its kind if everything is tiny."""
        kind = model.partition("-")[0]
        tiny = {"wrn": "wrn-10-1", "cnn": "cnn-4", "mlp": "mlp-16-16", "fast": "fast-4-8-8"}
        return tiny[kind] if self.small else model


class Limits(NamedTuple):
    """What a ratio must not exceed, and should not."""

    bar: float | None = None
    aim: float | None = None


class Bars(NamedTuple):
    """The limits of a ratio on machines with AVX-512, and on others."""

    avx512: Limits
    avx2: Limits

    @property
    def here(self) -> Limits:
        """Those that hold for the kernels in use."""
        return self.avx512 if available() and instruction_set() == "avx512" else self.avx2


def bars(avx512: tuple[float, float], avx2: tuple[float, float] | None = None) -> Bars:
    """Bars and aims with AVX-512, and without, if they differ."""
    return Bars(Limits(*avx512), Limits(*(avx2 or avx512)))


# Ratios as they come, and lines about what could not be measured or follows from them.
Measurement = Callable[[Settings], Iterator[Ratio | str]]
