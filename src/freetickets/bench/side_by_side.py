"""Members trained side by side against one after the other: whole commands."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..errors import FreeTicketsError
from ..launch.local import python
from .timing import Ratio, Settings, ratio

_MEMBERS = 2


def members(settings: Settings) -> Iterator[Ratio | str]:
    """Two members of a network so small that a second core hardly helps a step of it.

    Whole commands are compared, and two more processes take seconds to start: hence many epochs.
    """
    model, batch = settings.tiny("cnn-8"), settings.batch or 16
    epochs = 0.2 if settings.small else 16
    command = f"train dst --model {model} --tickets {_MEMBERS} --epochs {epochs} --quiet --json"
    command += f" --batch-size {batch} --backend masked"  # for which the bar is meant

    def train(*more: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            _run([*command.split(), "--output", str(Path(folder) / "run"), *more])

    yield ratio(
        f"{_MEMBERS} members side by side / one after the other "
        f"({model}, batch {batch}, {epochs} epochs, {os.cpu_count()} cores)",
        {"side by side": lambda: train("--jobs", str(_MEMBERS)), "one after the other": train},
        settings.few_repeats,
        bar=0.75,
    )


def _run(arguments: list[str]) -> None:
    # Each side has all cores: what the caller has set for itself must not be shared out.
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    command = python("freetickets", arguments)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FreeTicketsError(f"the training failed: {done.stderr.strip().rpartition(chr(10))[2]}")
