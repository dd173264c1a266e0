"""Predict images or arrays: the class, its probability, and how uncertain it is.

freetickets predict runs/edst photo.png folder/ images.npy > predictions.csv
"""

import argparse
import csv
import io
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FreeTicketsError

if TYPE_CHECKING:
    from ..ensemble import Ensemble


def run(parsed: argparse.Namespace) -> None:
    """Prints one row for each input, as CSV or JSON, as soon as it is predicted."""
    from ..data.images import count_inputs, list_images, read_inputs
    from ..ensemble import load
    from ..progress import WorkProgress
    from ..storage import write_atomic

    options = {"device": parsed.device, "task": parsed.task, "compile": not parsed.no_compile}
    ensemble = load(parsed.run_folder, parsed.model, **options)
    if parsed.cascade and ensemble.early is None:
        raise FreeTicketsError(
            f"{parsed.run_folder} has no cascade: run 'freetickets evaluate RUN --cascade --output "
            "FOLDER', and give that folder"
        )
    files = list_images(parsed.inputs)
    shape, size = tuple(ensemble.info["input_shape"]), parsed.batch_size
    batches = read_inputs(files, shape, parsed.resize, max(1, size))
    out = sys.stdout  # a bar would take its place
    progress = WorkProgress("inputs", quiet=parsed.output is None and out.isatty())

    def rows() -> Iterator[dict[str, object]]:
        for names, inputs in batches:
            columns = _columns(ensemble, inputs, size, parsed.cascade)
            for i, name in enumerate(names):
                row = {title: _plain(values[i].tolist()) for title, values in columns.items()}
                yield {"input": name, **row}
            progress.advance(len(names))

    with progress.over(count_inputs(files)):
        progress.begin("predicted")
        lines = (_json_lines if parsed.json else _csv_lines)(rows())
        if parsed.output:
            write_atomic(Path(parsed.output), (line.encode() for line in lines))
        else:
            out.writelines(lines)


def _columns(ensemble: "Ensemble", inputs: Any, size: int, cascade: bool) -> dict[str, Any]:
    more = {}
    if cascade:
        prediction, more["members"], unsure = ensemble.predict_in_turn(inputs, size)
    else:
        members = ensemble.member_predictions(inputs, size)
        prediction = ensemble.combine(members)
        unsure = ensemble.task.uncertainty(members, prediction)
    return {**ensemble.task.columns(prediction, ensemble.labels), **vars(unsure), **more}


def _plain(value: Any) -> Any:
    """Words as they are, a number with few digits, several numbers as a list."""
    if isinstance(value, list):
        return _plain(value[0]) if len(value) == 1 else list(map(_plain, value))
    return round(value, 6) if isinstance(value, float) else value


def _csv_lines(rows: Iterator[dict[str, object]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if number == 0:  # not before: what fails at once prints nothing
            writer.writerow(row)
        writer.writerow(row.values())
        yield text.getvalue()


def _json_lines(rows: Iterator[dict[str, object]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "[\n" if number == 0 else ",\n"
        yield textwrap.indent(json.dumps(row, indent=2), "  ")
    yield "\n]\n"
