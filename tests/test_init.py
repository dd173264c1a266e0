"""The package as one meets it at a prompt; each time a process of its own, as lazy names stay."""

import subprocess
import sys

import pytest

QUICK = (  # without torch
    "dir(ft), ft.tasks.Classification()",
    "ft.data.dataset_names(), ft.data.get_spec('cifar10')",
    "ft.models.model_names(), [*map(ft.models.check_name, ('wrn-28-10', 'torch.nn:Linear'))]",
    "from freetickets.data.corruptions import corrupt; corrupt(__import__('numpy').zeros((1, 8, 8),"
    " 'u1'), 'fog', 1)",
)


@pytest.mark.parametrize(
    "code",
    [
        "assert set(ft.__all__) <= set(dir(ft)) and '__version__' in dir(ft)",
        "assert 'allocate' in dir(ft.sparsity) and 'get_spec' in dir(ft.data)",
        "assert all(getattr(ft, name) is not None for name in ft.__all__)",
        "assert not hasattr(ft, 'Nothing')",
        "ft.evaluation.Predictions.load",
        *(f"{use}; assert 'torch' not in __import__('sys').modules" for use in QUICK),
    ],
)
def test_what_the_package_has_is_listed_and_found(code):
    command = [sys.executable, "-c", f"import freetickets as ft; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
