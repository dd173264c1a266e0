"""Score an ensemble on its test set, and on corrupted, unknown and attacked images.

freetickets evaluate runs/edst
freetickets evaluate runs/edst --corruptions all19 --ood svhn cifar100 --attack fgsm --features
freetickets evaluate runs/edst --select 3 --temperature ensemble --output runs/best
"""

from __future__ import annotations

import argparse
import contextlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import FreeTicketsError
from ..lock import hold

_SETS = ("corruptions", "ood", "attack", "features", "imagenet_a", "all", "samples", "fresh")


def add_prediction_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of commands that predict with the members of a run."""
    parser.add_argument("--model", metavar="MODULE:FUNCTION", help="factory of your own model")
    parser.add_argument("--task", metavar="MODULE:CLASS", help="task of your own")
    parser.add_argument(
        "-b",
        "--batch-size",
        type=int,
        default=256,
        metavar="N",
        help="samples per prediction (default: 256)",
    )
    parser.add_argument("--device", default="cpu", help="PyTorch device (default: cpu)")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("--data-dir", help="folder of the data sets")
    add_prediction_flags(parser)
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    _add_sets(parser)
    group = parser.add_argument_group("adjustments (fitted on the data that training held out)")
    group.add_argument(
        "--select", type=int, metavar="N", help="keep the N members that are best together"
    )
    group.add_argument(
        "--temperature",
        metavar="SCOPE",
        help="fit a temperature: one for the ensemble, or one for each of its members",
    )
    group.add_argument(
        "--output", "-o", metavar="FOLDER", help="save the adjusted ensemble for predict"
    )


def _add_sets(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "more test sets (saved predictions that still fit are used again)"
    )
    group.add_argument(
        "--corruptions",
        nargs="+",
        default=[],
        metavar="NAME",
        help="sets of corruptions (all19, common15, ub) or single ones (fog); read from the data "
        "folder (CIFAR-10-C), or made from the test images",
    )
    group.add_argument(
        "--ood",
        nargs="+",
        default=[],
        metavar="NAME",
        help="out-of-distribution sets: svhn, cifar10, cifar100, fashion-mnist, fashion-mini, "
        "mnist, gaussian-noise, additive-noise; or a folder of images, a .npy or .npz file",
    )
    group.add_argument(
        "--resize", action="store_true", help="convert out-of-distribution images of other shapes"
    )
    group.add_argument("--attack", nargs="+", default=[], metavar="NAME", help="attacks: fgsm, pgd")
    group.add_argument(
        "--epsilon",
        default="8/255",
        metavar="SHARE",
        help="size of an attack, as a share of the pixel range (default: 8/255)",
    )
    group.add_argument(
        "--features", action="store_true", help="compare the members' feature maps, layer by layer"
    )
    group.add_argument(
        "--imagenet-a", metavar="FOLDER", help="folder of ImageNet-A, with images in <wnid>/"
    )
    group.add_argument(
        "--all",
        action="store_true",
        help="everything that needs no download: all19, out-of-distribution sets, fgsm, features",
    )
    group.add_argument(
        "--samples", type=int, metavar="N", help="use the first N samples of each set"
    )
    group.add_argument("--fresh", action="store_true", help="predict again what is already saved")
    group.add_argument(
        "--saved",
        action="store_true",
        help="predict nothing; compute metrics.json from saved predictions",
    )


def run(parsed: argparse.Namespace) -> None:
    """Predicts, saves the predictions, and prints the scores."""
    _check_output(parsed)
    from ..progress import Display

    folder = Path(parsed.run_folder)
    # A folder that is not there is answered by who reads it.
    tell = Display(parsed.quiet).line
    with hold(folder, tell) if folder.is_dir() else contextlib.nullcontext():
        scores = _from_saved(parsed) if parsed.saved else _predict(parsed)
    if parsed.json:
        print(json.dumps(scores, indent=2))
        return
    from .tables import print_scores, print_suite

    print_scores(scores)
    print_suite(scores)


def _predict(parsed: argparse.Namespace) -> dict[str, Any]:
    epsilon = _fraction(parsed.epsilon)
    from ..ensemble import load
    from ..evaluation import Request, adjust, evaluate_run
    from ..progress import WorkProgress

    folder = Path(parsed.run_folder)
    ensemble = load(folder, parsed.model, device=parsed.device, task=parsed.task)
    options = parsed.data_dir, parsed.batch_size
    adjusted = None
    if parsed.select is not None or parsed.temperature is not None:
        adjusted = adjust(folder, ensemble, *options, size=parsed.select, scope=parsed.temperature)
    request = Request(
        corruptions=tuple(parsed.corruptions),
        ood=tuple(parsed.ood),
        attacks=tuple(parsed.attack),
        epsilon=epsilon,
        features=parsed.features,
        imagenet_a=parsed.imagenet_a,
        everything=parsed.all,
        samples=parsed.samples,
        resize=parsed.resize,
        fresh=parsed.fresh,
    )
    progress = WorkProgress(quiet=parsed.quiet)
    scores = evaluate_run(folder, ensemble, *options, adjusted, request, progress)
    if adjusted is not None and parsed.output:
        adjusted.save(parsed.output)
    return scores


def _from_saved(parsed: argparse.Namespace) -> dict[str, Any]:
    asked = [name for name in (*_SETS, "select", "temperature") if getattr(parsed, name)]
    if asked:
        raise FreeTicketsError(
            f"--saved predicts nothing: leave out --{asked[0].replace('_', '-')}, or --saved"
        )
    from ..evaluation.summary import evaluation_of
    from ..progress import WorkProgress

    folder = Path(parsed.run_folder)
    scores = evaluation_of(folder, tell=WorkProgress(quiet=parsed.quiet).warn, task=parsed.task)
    scores.save(folder / "metrics.json")
    return scores.as_dict()


def _fraction(text: str) -> float:
    """A share such as 8/255 or 0.03."""
    try:
        return float(Fraction(text.replace(" ", "")))
    except (ValueError, ArithmeticError) as error:
        raise FreeTicketsError(
            f"--epsilon {text} is not a number: give something like 8/255 or 0.03"
        ) from error


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
