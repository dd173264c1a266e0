"""OoD sets and attacks, as sets to predict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..data.ood import OOD_NAMES, digest, is_name, load_ood, refuse_known
from ..errors import FreeTicketsError, UnknownNameError
from ..predictions import Predictions
from .home import Home
from .request import Request
from .sets import EvaluationSet, Predictor, of_parts


def ood_sets(request: Request, home: Home) -> list[EvaluationSet]:
    """A set for each OoD set that is asked for.

    Raises:
        FreeTicketsError: One is unknown, can't be had, or is what the ensemble was trained on.
    """
    found: dict[str, EvaluationSet] = {}
    for name in dict.fromkeys(request.ood):
        made = _ood_set(name, request, home, download=True)
        if made.file in found:
            raise FreeTicketsError(
                f"two OoD sets would be called {made.name}: give {name} in a command of its own, "
                "under another name"
            )
        found[made.file] = made
    return list(found.values())


def every_ood_set(request: Request, home: Home, tell: Callable[[str], None]) -> list[EvaluationSet]:
    """The OoD sets that can be had without a download; says which are left out."""
    found, absent = [], []
    for name in OOD_NAMES:
        if name in request.ood or name == home.spec.name:
            continue
        try:
            found.append(_ood_set(name, request, home, download=False))
        except FreeTicketsError:
            absent.append(name)
    if absent:
        tell(
            "OoD sets that are left out, as they are not on disk, of another shape or known to the "
            f"ensemble (--ood NAME says more): {', '.join(absent)}"
        )
    return found


def _ood_set(name: str, request: Request, home: Home, download: bool) -> EvaluationSet:
    if name == home.spec.name:
        raise FreeTicketsError(
            f"{name} is what the ensemble was trained on: it is not out of distribution"
        )
    named = is_name(name)
    split = load_ood(
        name,
        home.split,
        tuple(home.spec.shape),
        home.data_dir,
        resize=request.resize,
        download=download,
        samples=request.samples,
    )
    refuse_known(name, split.inputs, home.known)
    path = Path(name).expanduser().resolve()
    info: dict[str, Any] = {
        "kind": "ood",
        "dataset": name if named else path.name if path.is_dir() else path.stem,
        "samples": request.samples,
        "resize": request.resize,
        "content": digest(split.inputs),
    }
    if not named:
        info["path"] = str(path)
    return of_parts(f"ood/{info['dataset']}.npz", len(split), info, lambda: [split])


def attack_sets(
    names: Sequence[str], epsilon: float, home: Home, members: int
) -> list[EvaluationSet]:
    """A set for each attack: the test images, changed to mislead each member in turn.

    Raises:
        FreeTicketsError: There is no such attack, or nothing to attack.
    """
    from .attacks import ATTACKS

    for name in names:
        if name not in ATTACKS:
            raise UnknownNameError("attack", name, ATTACKS)
    if names and not home.is_images:
        raise FreeTicketsError(
            f"attacks change pixels, and {home.spec.name} has features: leave them out"
        )
    if not 0 < epsilon <= 1:
        raise FreeTicketsError(
            f"--epsilon {epsilon:g}: choose a value above 0 and up to 1, such as 8/255"
        )
    return [_attack_set(name, epsilon, home, members) for name in dict.fromkeys(names)]


def _attack_set(name: str, epsilon: float, home: Home, members: int) -> EvaluationSet:
    from .attacks import attack_predictions

    info = {
        "kind": "attack",
        "dataset": home.spec.name,
        "attack": name,
        "epsilon": epsilon,
        "samples": home.limit,
        "images": home.digest,
    }

    def make(predictor: Predictor, told: dict[str, Any]) -> Predictions:
        made = attack_predictions(
            predictor.ensemble,
            home.split,
            attack=name,
            epsilon=epsilon,
            batch_size=predictor.batch_size,
            progress=predictor.progress.advance,
        )
        info = {**made.info, **told, **predictor.info}
        return Predictions(made.outputs, made.labels, info)

    return EvaluationSet(f"attacks/{name}.npz", members * len(home.split), info, make)
