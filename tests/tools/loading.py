"""Tools are scripts, in no package: how tests import them."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # data classes look their annotations up there
    spec.loader.exec_module(module)
    return module
