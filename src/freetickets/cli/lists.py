"""What there is: methods, data sets, models."""

import argparse

from ..config import Config
from ..data import dataset_names, get_spec
from ..errors import FreeTicketsError
from ..methods import METHODS
from ..models import check_name, model_names

Rows = list[dict[str, str]]


def methods(parsed: argparse.Namespace) -> Rows:
    """List the methods; --model wrn-28-10 shows what each costs."""
    if parsed.model is not None:
        check_name(parsed.model)
    rows = []
    for name, method in METHODS.items():
        row = {"name": name}
        if parsed.model is not None:
            row |= _cost(name, parsed.model, parsed.dataset)
        rows.append({**row, "summary": row.get("summary", method.summary), "paper": method.paper})
    return _shown(rows, parsed)


def _cost(method: str, model: str, dataset: str) -> dict[str, str]:
    """What a method costs by default, in dense networks; where it can't train this one, why."""
    from .. import data
    from ..training.job import Job

    spec = get_spec(dataset)
    config = Config(method=method, model=model, dataset=dataset).resolved(spec)
    try:
        ledger = Job(config, spec, lambda: data.load(spec, "train")).price()
    except FreeTicketsError as error:  # such as: this network has no stages to split
        return {**dict.fromkeys(("m", "runs", "training", "test"), "-"), "summary": str(error)}
    return {
        "m": str(ledger.members),
        "runs": f"{ledger.runs:g}",
        "training": f"{ledger.relative_flops:.2f}x",
        "test": f"{ledger.relative_test_flops:.2f}x",
    }


def datasets(parsed: argparse.Namespace) -> Rows:
    """List the data sets."""
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
    return _shown(rows, parsed)


def models(parsed: argparse.Namespace) -> Rows:
    """List the models."""
    return _shown([{"name": name, "description": text} for name, text in model_names()], parsed)


def _shown(rows: Rows, parsed: argparse.Namespace) -> Rows:
    if not parsed.json:
        lines = [[column.upper() for column in rows[0]], *(list(row.values()) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            print("  ".join(map(str.ljust, line, widths)).rstrip())
    return rows
