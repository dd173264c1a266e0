"""Train an ensemble; run the same command again to resume.

freetickets train edst --dataset cifar10 --model wrn-28-10 --sparsity 0.8 --output runs/edst
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..config import Config, read_config
from ..data import get_spec
from ..errors import FreeTicketsError
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
        config = _with_output(config, f"runs/{config.method}-{Path(spec.name).stem}-{config.seed}")
    folder = Path(str(config.output))
    _check_same(folder, config)

    from .. import data
    from ..ensemble import Ensemble
    from ..evaluation import evaluate_run
    from ..storage import read_json
    from ..training.job import Job
    from ..training.progress import Reporter
    from .tables import print_cost, print_scores

    reporter = Reporter(parsed.quiet)
    job = Job(config, spec, lambda: data.load(spec, "train", config.data_dir))
    tickets = job.train(reporter)
    scores = evaluate_run(folder, Ensemble(tickets, job.build), config.data_dir)
    ledger = read_json(folder / "ledger.json")
    if parsed.json:
        print(json.dumps({"output": str(folder), "scores": scores, "ledger": ledger}, indent=2))
        return
    print_scores(scores)
    print_cost(ledger)
    print(f"saved in {folder}")


def _with_output(config: Config, output: str) -> Config:
    from dataclasses import replace

    return replace(config, output=output)


def _check_same(folder: Path, config: Config) -> None:
    """Refuses to resume a run whose settings have changed."""
    file = folder / "config.yaml"
    if not file.exists():
        return
    changed = Config(**read_config(file)).differences(config)
    if changed:
        raise FreeTicketsError(
            f"{folder} holds a run with other settings ({'; '.join(changed)}): use the same "
            "settings to resume it, or another --output"
        )
