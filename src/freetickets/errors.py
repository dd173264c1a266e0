"""The one exception family: a mistake that a user can fix, told in one line."""

import difflib
from collections.abc import Iterable


class FreeTicketsError(Exception):
    """A user's mistake, or a machine's; the message says what to do about it.

    The command line prints it as one line and exits with code 2.
    """


class UnknownNameError(FreeTicketsError):
    """A name that no registry knows; the message offers the nearest one.

    Example:
        >>> raise UnknownNameError("model", "wnr-28-10", ["wrn-28-10", "mlp-100"])
        Traceback (most recent call last):
        ...
        freetickets.errors.UnknownNameError: unknown model 'wnr-28-10': did you mean 'wrn-28-10'?
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = list(known)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        super().__init__(f"unknown {kind} {name!r}: {hint}")


def check_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises unless a name is among those of its kind."""
    known = list(known)
    if name not in known:
        raise UnknownNameError(kind, name, known)


class MissingExtraError(FreeTicketsError):
    """An optional dependency is not installed; the message says how to install it."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an extra: pip install 'freetickets[{extra}]'")


class StoppedError(FreeTicketsError):
    """The work was interrupted on purpose; everything is saved and it can go on."""


class DivergedError(FreeTicketsError):
    """A training has diverged: its loss, weights or gradients are not finite."""


class DamagedFileError(FreeTicketsError):
    """A file is truncated, altered, or not of the kind that its place promises."""


class NewerFileError(FreeTicketsError):
    """A file has a format that only a later version can read; nothing is wrong with it."""


# PyTorch has no exception of its own for this: what its allocators and C++ say.
_WORDS_OF_SHORTAGE = ("allocate memory", "out of memory", "bad_alloc", "start new thread")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left."""
    if isinstance(error, (OSError, RuntimeError)):
        return any(words in str(error).lower() for words in _WORDS_OF_SHORTAGE)
    return isinstance(error, MemoryError)
