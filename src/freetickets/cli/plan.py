"""Show what a method will train, and at what cost, before any training.

freetickets plan edst --dataset cifar100 --model wrn-28-10
"""

import argparse
from dataclasses import asdict
from typing import Any


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Prints the plan and its ledger."""
    from .parser import training_from

    config, spec = training_from(parsed)

    from .. import data
    from ..progress import Display
    from ..training.job import Job
    from .tables import print_plan

    job = Job(config, spec, lambda: data.load(spec, "train", config.data_dir))
    ledger = job.price()
    job.warn_of_few_explorations(Display().warn)
    if not parsed.json:
        print_plan(config, spec, ledger)
    return {"plan": asdict(job.plan), "ledger": ledger.as_dict()}
