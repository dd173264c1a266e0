"""Score an ensemble on its test set: members, their mean, and the ensemble.

freetickets evaluate runs/edst
freetickets evaluate runs/edst --select 3 --temperature ensemble --output runs/best
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..errors import FreeTicketsError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("--data-dir", help="where data sets lie")
    parser.add_argument("--model", metavar="MODULE:FUNCTION", help="the factory of your own model")
    parser.add_argument("-b", "--batch-size", type=int, default=256)
    parser.add_argument("--device", default="cpu")
    group = parser.add_argument_group("adjustments, fitted on the data that training held out")
    group.add_argument("--select", type=int, metavar="N", help="choose the N best members together")
    group.add_argument(
        "--temperature",
        metavar="SCOPE",
        help="fit one for the ensemble, or one for each of its members",
    )
    group.add_argument(
        "--output", "-o", metavar="FOLDER", help="save the adjusted ensemble, for predict"
    )


def run(parsed: argparse.Namespace) -> None:
    """Predicts, saves the predictions, and prints the scores."""
    from ..ensemble import load
    from ..evaluation import adjust, evaluate_run
    from .tables import print_scores

    _check_output(parsed)
    folder = Path(parsed.run_folder)
    ensemble = load(folder, parsed.model, device=parsed.device)
    options = parsed.data_dir, parsed.batch_size
    adjusted = None
    if parsed.select is not None or parsed.temperature is not None:
        adjusted = adjust(folder, ensemble, *options, size=parsed.select, scope=parsed.temperature)
    scores = evaluate_run(folder, ensemble, *options, adjusted)
    if adjusted is not None and parsed.output:
        adjusted.save(parsed.output)
    if parsed.json:
        print(json.dumps(scores, indent=2))
    else:
        print_scores(scores)


def _check_output(parsed: argparse.Namespace) -> None:
    if not parsed.output:
        return
    if parsed.select is None and parsed.temperature is None:
        raise FreeTicketsError(
            "--output saves an adjusted ensemble: say how with --select or --temperature"
        )
    if (Path(parsed.output) / "config.yaml").exists():
        raise FreeTicketsError(
            f"{parsed.output} holds a run, whose tickets would be replaced: choose another --output"
        )
