import pytest

from freetickets.training.progress import Reporter


class Killed(BaseException):
    """The process ends here; nothing may catch this."""


@pytest.fixture
def same_if_killed(monkeypatch, tmp_path, digests):
    """Whether a training that ends every so many steps, and starts again, has the same tickets."""

    def train_to_the_end(steps, train):
        left = 0

        def counted(*_):
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

    def same(steps, train):
        train(tmp_path / "whole")
        assert train_to_the_end(steps, lambda: train(tmp_path / "killed")) >= 4
        return digests(tmp_path / "killed" / "tickets") == digests(tmp_path / "whole" / "tickets")

    return same
