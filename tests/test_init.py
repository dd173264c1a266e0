"""The package as one meets it at a prompt; each time a process of its own, as lazy names stay."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "assert set(ft.__all__) <= set(dir(ft)) and '__version__' in dir(ft)",
        "assert 'allocate' in dir(ft.sparsity) and 'get_spec' in dir(ft.data)",
        "assert all(getattr(ft, name) is not None for name in ft.__all__)",
        "assert not hasattr(ft, 'Nothing')",
        "assert 'torch' not in __import__('sys').modules and dir(ft)",
        "ft.evaluation.Predictions.load",
    ],
)
def test_what_the_package_has_is_listed_and_found(code):
    command = [sys.executable, "-c", f"import freetickets as ft; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
