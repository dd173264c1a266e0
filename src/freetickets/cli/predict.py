"""Predict images or arrays: class, probability and uncertainty of each.

freetickets predict runs/edst photo.png folder/ images.npy > predictions.csv
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path

COLUMNS = ("input", "class", "probability", "total", "aleatoric", "epistemic")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="images, folders, .npy or .npz")
    parser.add_argument("--resize", action="store_true", help="fit images of other sizes")
    parser.add_argument("--output", "-o", metavar="FILE", help="write there, not to the terminal")
    parser.add_argument("--model", metavar="MODULE:FUNCTION", help="the factory of your own model")
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("--device", default="cpu")


def run(parsed: argparse.Namespace) -> None:
    """Prints one row for each input, as CSV or JSON."""
    import numpy as np

    from ..data.images import read_inputs
    from ..ensemble import Uncertainty, load
    from ..storage import write_atomic

    ensemble = load(parsed.run_folder, parsed.model, device=parsed.device)
    shape = tuple(ensemble.info["input_shape"])
    names, inputs = read_inputs(parsed.inputs, shape, resize=parsed.resize)
    log_probs = ensemble.compile().member_log_proba(inputs, parsed.batch_size)
    prediction = ensemble.combine(log_probs)
    probs = np.exp(prediction)
    unsure = Uncertainty.of(log_probs, prediction)
    rows = [
        {
            "input": names[i],
            "class": ensemble.classes[probs[i].argmax()],
            "probability": round(float(probs[i].max()), 6),
            "total": round(float(unsure.total[i]), 6),
            "aleatoric": round(float(unsure.aleatoric[i]), 6),
            "epistemic": round(float(unsure.epistemic[i]), 6),
        }
        for i in range(len(names))
    ]
    text = json.dumps(rows, indent=2) + "\n" if parsed.json else _csv(rows)
    if parsed.output:
        write_atomic(Path(parsed.output), text.encode())
    else:
        sys.stdout.write(text)


def _csv(rows: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
