"""Ctrl-C and SIGTERM as a wish that is granted between two steps."""

import signal
import threading
from types import FrameType
from typing import Any


class StopRequest:
    """While entered, notes Ctrl-C and SIGTERM instead of dying; a second Ctrl-C ends at once."""

    def __init__(self) -> None:
        self.made = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():  # others get no signals
            for kind in (signal.SIGINT, signal.SIGTERM):
                self._before[kind] = signal.signal(kind, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.made and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.made = True
