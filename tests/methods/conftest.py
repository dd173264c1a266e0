from __future__ import annotations

from collections.abc import Callable

import pytest

from freetickets.training.progress import Reporter


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


@pytest.fixture
def kill_every(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], int]:
    """Ends a training every so many steps and starts it again until it is done; counts that."""

    def train_to_the_end(steps: int, train: Callable[[], None]) -> int:
        left = 0

        def counted(*_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        monkeypatch.setattr(Reporter, "step", counted)
        for kills in range(100):
            left = steps
            try:
                train()
                return kills
            except Killed:
                pass
        raise AssertionError("the training does not come to an end")

    return train_to_the_end
