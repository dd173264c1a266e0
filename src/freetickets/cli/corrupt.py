"""Write a corrupted copy of a test set, like CIFAR-10-C; run the same command again to continue.

freetickets corrupt cifar10 --output data -j 2
freetickets corrupt fashion-mini --output data --corruptions fog snow --samples 500
"""

import argparse
from pathlib import Path
from typing import Any

from ..data import get_spec
from ..data.corruptions import SEVERITIES, check_corruption, chosen, set_name
from ..errors import FreeTicketsError, StoppedError


def run(parsed: argparse.Namespace) -> dict[str, Any]:
    """Writes one file per corruption until someone wants to stop, and says where they are."""
    names = chosen(parsed.corruptions)
    severities = sorted(set(parsed.severities or SEVERITIES))
    for severity in severities:
        check_corruption(names[0], severity)
    spec = get_spec(parsed.dataset, parsed.data_dir)
    why = "only small images that fit in memory, like CIFAR's, can be corrupted here"
    photos = FreeTicketsError(f"{spec.name} consists of photos on disk: {why}")
    if spec.name == "imagenet":
        raise photos
    if not spec.mean or spec.shape[0] not in (1, 3):
        raise FreeTicketsError(f"{spec.name} has no images: only grey or RGB ones can be corrupted")

    import numpy as np

    from ..data import LazySplit, load
    from ..data.corruptions.folder import CorruptedSet
    from ..data.corruptions.frost import find_frost
    from ..progress import WorkProgress
    from ..training.interrupt import StopRequest

    frost = find_frost(parsed.frost, parsed.data_dir)
    data = load(spec, "test", parsed.data_dir)
    if isinstance(data, LazySplit):
        raise photos
    images = data.inputs[: parsed.samples].numpy().transpose(0, 2, 3, 1)
    corrupted = CorruptedSet(
        Path(parsed.output) / set_name(spec.name), Path(spec.name).stem,
        np.ascontiguousarray(images[..., 0] if images.shape[3] == 1 else images),
        data.labels[: parsed.samples].numpy(), severities, parsed.seed, frost,
    )  # fmt: skip
    missing = [name for name in names if not corrupted.has(name)]
    kept = [name for name in names if name not in missing]
    progress = WorkProgress("images", parsed.quiet)
    with StopRequest() as stop, progress.over(len(missing) * len(severities) * len(images)):
        for number, name in enumerate(missing):
            progress.begin(f"{name} ({number + 1}/{len(missing)})")
            for count in corrupted.write(name, parsed.workers):
                progress.advance(count)
                if stop.made:
                    raise StoppedError(
                        f"stopped: {number} of {len(missing)} corruptions were made and are in "
                        f"{corrupted.folder}; run the same command again to continue"
                    )
            progress.end(name)
    made_of = corrupted.settings["frost"]
    if not parsed.json:
        there = f", {len(kept)} were already there" if kept else ""
        print(f"{len(missing)} corruptions made{there}; frost: {made_of}")
        print(f"saved in {corrupted.folder}")
    return {"output": str(corrupted.folder), "made": missing, "kept": kept, "frost": made_of}
