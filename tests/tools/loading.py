"""Tools and examples are scripts, in no package: how tests import them."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_script(path):
    """Imports a file, by its path from the top of the checkout."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look their annotations up there
    spec.loader.exec_module(module)
    return module
