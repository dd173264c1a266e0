"""Train an ensemble; run the same command again to resume.

freetickets train edst --dataset cifar10 --model wrn-28-10 --sparsity 0.8 --output runs/edst
freetickets train dst --dataset cifar10 --model wrn-28-10 --tickets 4 --jobs 2
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..launch import launcher_from, on_this_machine
from ..launch.assignment import WAIT
from ..lock import hold
from ..reading import read_json


def run(parsed: argparse.Namespace) -> dict[str, Any] | None:
    """Trains, evaluates on the test set, and prints the table."""
    from .parser import training_from

    launcher = launcher_from(parsed)
    config, spec = training_from(parsed)
    if config.output is None:
        name = f"{config.method}-{Path(spec.name).stem}-{config.seed}"
        config = replace(config, output=f"runs/{name}")
    folder = Path(str(config.output))

    from .. import data
    from ..training.job import PARTS, Job
    from ..training.parallel import rank
    from ..training.progress import Reporter

    reporter = Reporter(parsed.quiet)
    job = Job(config, spec, lambda: data.load(spec, "train", config.data_dir))
    if parsed.part is not None:
        with hold(folder, reporter.line, WAIT):
            job.train(reporter, parsed.part)
        return None
    if rank() > 0:  # the first one holds the folder, and does what is done once
        job.train(reporter)
        return None
    with hold(folder, reporter.line):
        from ..ensemble import Ensemble
        from ..evaluation import evaluate_run
        from ..evaluation.results import Evaluation
        from ..launch.parts import train_in_parts
        from .tables import print_cost, print_scores

        if launcher is not None and len(job.plan.runs) == 1:
            single = f"{config.method} is a single run"
            reporter.warn(f"{single}: there is nothing to train side by side")
        elif launcher is not None or (folder / PARTS).exists():
            job.warn_of_few_explorations(reporter.warn)
            imports = [word for module in parsed.imports for word in ("--import", module)]
            train_in_parts(job, launcher or on_this_machine(1), reporter, imports)
        ensemble = Ensemble(job.train(reporter), job.build, method=job.method, task=job.task)
        scores = evaluate_run(folder, ensemble, config.data_dir)
        ledger = read_json(folder / "ledger.json")
    if not parsed.json:
        print_scores(Evaluation.of(scores))
        print_cost(ledger)
        print(f"saved in {folder}")
    return {"output": str(folder), "scores": scores, "ledger": ledger}
