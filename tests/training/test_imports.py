"""Which way imports go."""

from __future__ import annotations

import subprocess
import sys


def test_training_does_not_import_evaluation():
    code = (
        "import sys, freetickets.training.trainer, freetickets.training.job;"
        "assert not [name for name in sys.modules if name.startswith('freetickets.evaluation')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
