"""Score an ensemble on its test set, and on corrupted, out-of-distribution and attacked images.

freetickets evaluate runs/edst
freetickets evaluate runs/edst --corruptions all19 --ood svhn cifar100 --attack fgsm --features
freetickets evaluate runs/edst --select 3 --temperature ensemble --cascade --output runs/best
"""

import argparse
import contextlib
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError
from ..lock import hold

_REQUESTED = ("features", "imagenet_a", "samples", "resize", "fresh")  # fields of the request
_NOT_SAVED = (
    *("corruptions", "ood", "attack", "features", "imagenet_a", "all", "samples", "fresh"),
    *("select", "temperature", "cascade"),
)


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Predicts, saves the predictions, and prints the scores."""
    adjusts = parsed.cascade or (parsed.select, parsed.temperature) != (None, None)
    if parsed.output and not adjusts:
        raise FreeTicketsError(
            "--output saves an adjusted ensemble: say how with --select, --temperature or --cascade"
        )
    if parsed.output and (Path(parsed.output) / "config.yaml").exists():
        raise FreeTicketsError(
            f"{parsed.output} holds a run, whose tickets would be replaced: choose another --output"
        )
    from ..progress import Display

    folder = Path(parsed.run_folder)
    # A folder that is not there is answered by who reads it.
    tell = Display(parsed.quiet).line
    with hold(folder, tell) if folder.is_dir() else contextlib.nullcontext():
        scores = _from_saved(folder, parsed) if parsed.saved else _predict(folder, parsed, adjusts)
    if not parsed.json:
        from ..evaluation.results import Evaluation
        from .tables import print_scores, print_suite

        found = Evaluation.of(scores)
        print_scores(found)
        print_suite(found)
    return scores


def _predict(folder: Path, parsed: argparse.Namespace, adjusts: bool) -> dict[str, Any]:
    try:
        epsilon = float(Fraction(parsed.epsilon.replace(" ", "")))
    except (ValueError, ArithmeticError) as error:
        hint = "give something like 8/255 or 0.03"
        raise FreeTicketsError(f"--epsilon {parsed.epsilon} is not a number: {hint}") from error
    from ..ensemble import load
    from ..evaluation import Request, adjust, evaluate_run
    from ..progress import WorkProgress

    how = {"device": parsed.device, "task": parsed.task, "compile": not parsed.no_compile}
    ensemble = load(folder, parsed.model, **how)
    options = parsed.data_dir, parsed.batch_size
    adjusted = None
    if adjusts:
        how = {"size": parsed.select, "scope": parsed.temperature, "cascade": parsed.cascade}
        adjusted = adjust(folder, ensemble, *options, **how)
    request = Request(
        corruptions=tuple(parsed.corruptions), ood=tuple(parsed.ood), attacks=tuple(parsed.attack),
        epsilon=epsilon, everything=parsed.all,
        **{name: getattr(parsed, name) for name in _REQUESTED},
    )  # fmt: skip
    progress = WorkProgress(quiet=parsed.quiet)
    scores = evaluate_run(folder, ensemble, *options, adjusted, request, progress)
    if adjusted is not None and parsed.output:
        adjusted.save(parsed.output)
    return scores


def _from_saved(folder: Path, parsed: argparse.Namespace) -> dict[str, Any]:
    for name in _NOT_SAVED:
        if getattr(parsed, name):
            flag = name.replace("_", "-")
            raise FreeTicketsError(f"--saved predicts nothing: leave out --{flag}, or --saved")
    from ..evaluation.summary import evaluation_of
    from ..progress import WorkProgress

    found = evaluation_of(folder, tell=WorkProgress(quiet=parsed.quiet).warn, task=parsed.task)
    found.save(folder / "metrics.json")
    return found.as_dict()
