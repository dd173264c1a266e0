"""Train an ensemble; run the same command again to resume.

freetickets train edst --dataset cifar10 --model wrn-28-10 --sparsity 0.8 --output runs/edst
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from ..data import get_spec
from ..models import check_name


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that only this command has."""
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(parsed: argparse.Namespace) -> None:
    """Trains, evaluates on the test set, and prints the table."""
    from .parser import config_from

    config = config_from(parsed)
    check_name(config.model)
    spec = get_spec(config.dataset, config.data_dir, config.image_size)
    config = config.resolved(spec)
    if config.output is None:
        output = f"runs/{config.method}-{Path(spec.name).stem}-{config.seed}"
        config = replace(config, output=output)
    folder = Path(str(config.output))

    from .. import data
    from ..ensemble import Ensemble
    from ..evaluation import evaluate_run
    from ..storage import read_json
    from ..training.job import Job
    from ..training.parallel import rank
    from ..training.progress import Reporter
    from .tables import print_cost, print_scores

    reporter = Reporter(parsed.quiet)
    job = Job(config, spec, lambda: data.load(spec, "train", config.data_dir))
    tickets = job.train(reporter)
    if rank() > 0:
        return
    scores = evaluate_run(folder, Ensemble(tickets, job.build), config.data_dir)
    ledger = read_json(folder / "ledger.json")
    if parsed.json:
        print(json.dumps({"output": str(folder), "scores": scores, "ledger": ledger}, indent=2))
        return
    print_scores(scores)
    print_cost(ledger)
    print(f"saved in {folder}")
