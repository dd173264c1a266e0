"""Score an ensemble on its test set: members, their mean, and the ensemble.

freetickets evaluate runs/edst
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("--data-dir", help="where data sets lie")
    parser.add_argument("--model", metavar="MODULE:FUNCTION", help="the factory of your own model")
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("--device", default="cpu")


def run(parsed: argparse.Namespace) -> None:
    """Predicts, saves the predictions, and prints the scores."""
    from ..ensemble import load
    from ..evaluation import evaluate_run
    from .tables import print_scores

    folder = Path(parsed.run_folder)
    ensemble = load(folder, parsed.model, device=parsed.device)
    scores = evaluate_run(folder, ensemble, parsed.data_dir, parsed.batch_size)
    if parsed.json:
        print(json.dumps(scores, indent=2))
    else:
        print_scores(scores)
