"""Score an ensemble on its test set, and on corrupted, unknown and attacked images.

freetickets evaluate runs/edst
freetickets evaluate runs/edst --corruptions all19 --ood svhn cifar100 --attack fgsm --features
freetickets evaluate runs/edst --select 3 --temperature ensemble --output runs/best
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
    *("select", "temperature"),
)


def add_prediction_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of commands that predict with the members of a run."""
    add = parser.add_argument
    add("--model", metavar="MODULE:FUNCTION", help="factory of your own model")
    add("--task", metavar="MODULE:CLASS", help="task of your own")
    text = "samples per prediction (default: 256)"
    add("-b", "--batch-size", type=int, default=256, metavar="N", help=text)
    add("--device", default="cpu", help="PyTorch device (default: cpu)")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("--data-dir", help="folder of the data sets")
    add_prediction_flags(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    title = "more test sets (saved predictions that still fit are used again)"
    add = parser.add_argument_group(title).add_argument
    several: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "NAME"}
    text = (
        "sets of corruptions (all19, common15, ub) or single ones (fog); read from the data "
        "folder (CIFAR-10-C), or made from the test images"
    )
    add("--corruptions", **several, help=text)
    text = (
        "out-of-distribution sets: svhn, cifar10, cifar100, fashion-mnist, fashion-mini, "
        "mnist, gaussian-noise, additive-noise; or a folder of images, a .npy or .npz file"
    )
    add("--ood", **several, help=text)
    text = "convert out-of-distribution images of other shapes"
    add("--resize", action="store_true", help=text)
    add("--attack", **several, help="attacks: fgsm, pgd")
    text = "size of an attack, as a share of the pixel range (default: 8/255)"
    add("--epsilon", default="8/255", metavar="SHARE", help=text)
    text = "compare the members' feature maps, layer by layer"
    add("--features", action="store_true", help=text)
    add("--imagenet-a", metavar="FOLDER", help="folder of ImageNet-A, with images in <wnid>/")
    text = "everything that needs no download: all19, out-of-distribution sets, fgsm, features"
    add("--all", action="store_true", help=text)
    add("--samples", type=int, metavar="N", help="use the first N samples of each set")
    add("--fresh", action="store_true", help="predict again what is already saved")
    text = "predict nothing; compute metrics.json from saved predictions"
    add("--saved", action="store_true", help=text)
    title = "adjustments (fitted on the data that training held out)"
    add = parser.add_argument_group(title).add_argument
    add("--select", type=int, metavar="N", help="keep the N members that are best together")
    text = "fit a temperature: one for the ensemble, or one for each of its members"
    add("--temperature", metavar="SCOPE", help=text)
    add("--output", "-o", metavar="FOLDER", help="save the adjusted ensemble for predict")


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Predicts, saves the predictions, and prints the scores."""
    adjusts = parsed.select is not None or parsed.temperature is not None
    if parsed.output and not adjusts:
        raise FreeTicketsError(
            "--output saves an adjusted ensemble: say how with --select or --temperature"
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

    ensemble = load(folder, parsed.model, device=parsed.device, task=parsed.task)
    options = parsed.data_dir, parsed.batch_size
    adjusted = None
    if adjusts:
        adjusted = adjust(folder, ensemble, *options, size=parsed.select, scope=parsed.temperature)
    request = Request(
        corruptions=tuple(parsed.corruptions),
        ood=tuple(parsed.ood),
        attacks=tuple(parsed.attack),
        epsilon=epsilon,
        everything=parsed.all,
        **{name: getattr(parsed, name) for name in _REQUESTED},
    )
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
