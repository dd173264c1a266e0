"""A process that does one piece: `freetickets.cli.worker ARGUMENTS`, which `launch/start.py` runs.

It stops, and saves, when its standard input ends. So it does when the process that started it dies,
however that happens.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from . import main


def work(arguments: Sequence[str], log: str, where: str, threads: int) -> int:
    """Does a piece in a process of somebody else's, such as Ray's; returns its exit code.

    Its progress goes to the file `log`, and paths are relative to the folder `where`.
    """
    import torch

    os.chdir(where)
    torch.set_num_threads(threads)
    with Path(log).open("a", buffering=1) as file, contextlib.redirect_stderr(file):
        return main(arguments)


def _stop_with_input() -> None:
    while os.read(0, 1):  # unbuffered: a buffer's lock would be held when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # Training saves and stops by itself; before and after it, too, a lock must not be left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_stop_with_input, daemon=True).start()
    sys.exit(main())
