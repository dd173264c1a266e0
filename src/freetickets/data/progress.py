"""How far a download is: a bar on a terminal, a few plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LINES = 4  # of a log, for the whole transfer


@contextmanager
def transfer_progress(url: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a transfer on the standard error stream while the block runs.

    Args:
        url: What is transferred.
        total: Its bytes, 0 if the server does not say.

    Yields:
        A function to call with the number of bytes that have just come.
    """
    if not sys.stderr.isatty():
        yield _plain_lines(url, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    name = url.rsplit("/", 1)[-1]
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total or None)
        yield lambda count: bar.advance(task, count)


def _plain_lines(url: str, total: int) -> Callable[[int], None]:
    print(f"downloading {url}" + (f" ({total / 1e6:.1f} MB)" if total else ""), file=sys.stderr)
    received = 0

    def advance(count: int) -> None:
        nonlocal received
        before, received = received, received + count
        if total and received * _LINES // total > before * _LINES // total:
            print(f"  {received / total:.0%}", file=sys.stderr)

    return advance
