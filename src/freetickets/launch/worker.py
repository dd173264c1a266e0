"""A process that does one piece: `freetickets.launch.worker ARGUMENTS`, which `start.py` runs.

It stops, and saves, when its standard input ends. So it does when the process that started it dies,
however that happens.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from ..cli import main


def _stop_with_input() -> None:
    while os.read(0, 1):  # unbuffered: a buffer's lock would be held when Python ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    # Training saves and stops by itself; before and after it, too, a lock must not be left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    threading.Thread(target=_stop_with_input, daemon=True).start()
    sys.exit(main())
