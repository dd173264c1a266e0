"""What there is: methods, data sets, models."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ..data import dataset_names, get_spec
from ..methods import METHODS
from ..models import model_names


def methods(parsed: argparse.Namespace) -> None:
    """Lists the methods."""
    rows = [
        {"name": name, "summary": method.summary, "paper": method.paper}
        for name, method in METHODS.items()
    ]
    _show(rows, parsed.json)


def datasets(parsed: argparse.Namespace) -> None:
    """Lists the data sets."""
    specs = [get_spec(name) for name in dataset_names()]
    rows = [
        {
            "name": spec.name,
            "images": f"{spec.train_size:,} + {spec.test_size:,}",
            "shape": "x".join(map(str, spec.shape)),
            "classes": str(len(spec.classes)),
            "description": spec.description,
            "source": spec.source,
        }
        for spec in specs
    ]
    _show(rows, parsed.json)


def models(parsed: argparse.Namespace) -> None:
    """Lists the models."""
    _show([{"name": name, "description": text} for name, text in model_names()], parsed.json)


COMMANDS = (
    ("methods", methods, "list the methods"),
    ("datasets", datasets, "list the data sets"),
    ("models", models, "list the models"),
)


def _show(rows: Sequence[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    print("  ".join(c.upper().ljust(widths[c]) for c in columns).rstrip())
    for row in rows:
        print("  ".join(row[c].ljust(widths[c]) for c in columns).rstrip())
