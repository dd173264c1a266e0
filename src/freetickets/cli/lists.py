"""What there is: methods, data sets, models."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from ..config import Config
from ..data import dataset_names, get_spec
from ..errors import FreeTicketsError
from ..methods import METHODS
from ..models import check_name, model_names


def methods(parsed: argparse.Namespace) -> None:
    """Lists the methods; with a model, also what each costs."""
    if parsed.model is not None:
        check_name(parsed.model)
    rows = []
    for name, method in METHODS.items():
        row = {"name": name}
        if parsed.model is not None:
            row |= _cost(name, parsed.model, parsed.dataset)
        rows.append({**row, "summary": row.get("summary", method.summary), "paper": method.paper})
    _show(rows, parsed.json)


def _cost(method: str, model: str, dataset: str) -> dict[str, str]:
    """What a method costs by default, in dense networks; where it can't train this one, why."""
    from .. import data
    from ..training.job import Job

    spec = get_spec(dataset)
    config = Config(method=method, model=model, dataset=dataset).resolved(spec)
    try:
        ledger = Job(config, spec, lambda: data.load(spec, "train")).price()
    except FreeTicketsError as error:  # such as: this network has no stages to split
        return {"m": "-", "runs": "-", "training": "-", "test": "-", "summary": str(error)}
    return {
        "m": str(ledger.members),
        "runs": f"{ledger.runs:g}",
        "training": f"{ledger.relative_flops:.2f}x",
        "test": f"{ledger.relative_test_flops:.2f}x",
    }


def datasets(parsed: argparse.Namespace) -> None:
    """Lists the data sets."""
    rows = [
        {
            "name": spec.name,
            "images": f"{spec.train_size:,} + {spec.test_size:,}",
            "shape": "x".join(map(str, spec.shape)),
            "classes": str(len(spec.classes)),
            "description": spec.description,
            "source": spec.source,
        }
        for spec in map(get_spec, dataset_names())
    ]
    _show(rows, parsed.json)


def models(parsed: argparse.Namespace) -> None:
    """Lists the models."""
    _show([{"name": name, "description": text} for name, text in model_names()], parsed.json)


def add_method_flags(command: argparse.ArgumentParser) -> None:
    """Adds the flags of `methods`."""
    text = "also show what each method costs with this model"
    command.add_argument("--model", metavar="STR", help=text)
    text = "and with this data set (default: cifar10)"
    command.add_argument("--dataset", metavar="STR", default="cifar10", help=text)


COMMANDS = (
    ("methods", methods, "List the methods; --model wrn-28-10 shows what each costs."),
    ("datasets", datasets, "List the data sets."),
    ("models", models, "List the models."),
)


def _show(rows: Sequence[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(row[c]) for row in rows)) for c in columns}
    for row in ({c: c.upper() for c in columns}, *rows):
        print("  ".join(row[c].ljust(widths[c]) for c in columns).rstrip())
