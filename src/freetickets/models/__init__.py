"""Networks by name: `create_model("wrn-28-10", (3, 32, 32), 10)`.

Importing this package does not import torch, so that the command line can list and check names
at once. A new architecture is a builder and an entry in `names.py`.
"""

from .names import check_name, create_model, model_names

__all__ = ["check_name", "create_model", "model_names"]
