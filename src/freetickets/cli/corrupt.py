"""Write a corrupted copy of a test set, like CIFAR-10-C; run it again to continue.

freetickets corrupt cifar10 --output data -j 2
freetickets corrupt fashion-mini --output data --corruptions fog snow --samples 500
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..data import DatasetSpec, get_spec
from ..data.corruptions.names import CORRUPTIONS, SEVERITIES, check_corruption, chosen, set_name
from ..errors import FreeTicketsError, StoppedError

if TYPE_CHECKING:
    from ..data.corruptions.folder import CorruptedSet


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        help="a name from `freetickets datasets`, or the path of your own images",
    )
    parser.add_argument(
        "--output", "-o", required=True, metavar="DIR", help="folder to create the corrupted set in"
    )
    parser.add_argument(
        "--corruptions",
        nargs="+",
        default=["all19"],
        metavar="NAME",
        help=f"all19 (default), common15, or names: {', '.join(CORRUPTIONS)}",
    )
    parser.add_argument(
        "--severities",
        nargs="+",
        type=int,
        default=SEVERITIES,
        metavar="N",
        help="severities, 1 to 5 (default: all)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the noise (default: %(default)s)"
    )
    parser.add_argument(
        "--frost",
        metavar="DIR",
        help="folder of the published frost pictures (default: frost/ in --data-dir, or else "
        "synthetic frost)",
    )
    parser.add_argument("--data-dir", help="folder of the data sets")
    parser.add_argument("--samples", type=int, metavar="N", help="only the first N images")
    parser.add_argument(
        "-j", "--workers", type=int, default=1, metavar="N", help="number of processes"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(parsed: argparse.Namespace) -> None:
    """Corrupts, one file a corruption, and says where they are."""
    names = chosen(parsed.corruptions)
    severities = sorted(set(parsed.severities))
    for severity in severities:
        check_corruption(names[0], severity)
    for flag in ("samples", "workers"):
        if getattr(parsed, flag) is not None and getattr(parsed, flag) < 1:
            raise FreeTicketsError(f"--{flag} {getattr(parsed, flag)}: give 1 or more")
    spec = get_spec(parsed.dataset, parsed.data_dir)
    _refuse_what_is_no_small_image(spec)

    import numpy as np

    from ..data import LazySplit, load
    from ..data.corruptions.folder import CorruptedSet
    from ..data.corruptions.frost import find_frost

    frost = find_frost(parsed.frost, parsed.data_dir)
    data = load(spec, "test", parsed.data_dir)
    if isinstance(data, LazySplit):
        raise FreeTicketsError(_PHOTOS.format(spec.name))
    images = data.inputs[: parsed.samples].numpy().transpose(0, 2, 3, 1)
    corrupted = CorruptedSet(
        Path(parsed.output) / set_name(spec.name),
        Path(spec.name).stem,
        np.ascontiguousarray(images[..., 0] if images.shape[3] == 1 else images),
        data.labels[: parsed.samples].numpy(),
        severities,
        parsed.seed,
        frost,
    )
    missing = [name for name in names if not corrupted.has(name)]
    _fill(corrupted, missing, len(severities) * len(images), parsed.workers, parsed.quiet)
    if parsed.json:
        answer = {
            "output": str(corrupted.folder),
            "made": missing,
            "kept": [name for name in names if name not in missing],
            "frost": corrupted.settings["frost"],
        }
        print(json.dumps(answer, indent=2))
        return
    kept = f", {len(names) - len(missing)} were there" if len(missing) < len(names) else ""
    print(f"{len(missing)} corruptions made{kept}; frost: {corrupted.settings['frost']}")
    print(f"saved in {corrupted.folder}")


_PHOTOS = (
    "{} consists of photos on disk: only small images that fit in memory, like CIFAR's, can be "
    "corrupted here"
)


def _refuse_what_is_no_small_image(spec: DatasetSpec) -> None:
    if spec.name == "imagenet":
        raise FreeTicketsError(_PHOTOS.format(spec.name))
    if not spec.mean or spec.shape[0] not in (1, 3):
        raise FreeTicketsError(
            f"{spec.name} has no images: only grey or RGB images can be corrupted"
        )


def _fill(
    corrupted: CorruptedSet, names: Sequence[str], images: int, workers: int, quiet: bool
) -> None:
    """Makes the corruptions one by one, until someone wants to stop."""
    from ..progress import WorkProgress
    from ..training.interrupt import StopRequest

    progress = WorkProgress("images", quiet)
    with (
        StopRequest() as stop,
        corrupted.workers(workers) as pool,
        progress.over(len(names) * images),
    ):
        for number, name in enumerate(names):
            progress.begin(f"{name} ({number + 1}/{len(names)})")
            for count in corrupted.write(name, pool):
                progress.advance(count)
                if stop.made:
                    raise StoppedError(
                        f"stopped: {number} of {len(names)} corruptions were made and are in "
                        f"{corrupted.folder}; run the same command again to continue"
                    )
            progress.end(name)
