"""Evaluating a run: predictions of its test set and of others, saved, and all their scores."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import data
from ..calibration import check_scope
from ..config import read_run_config
from ..data.loading import load_validation
from ..ensemble import Ensemble
from ..errors import FreeTicketsError, StoppedError
from ..predictions import Predictions
from ..progress import WorkProgress
from ..storage import write_json
from ..tasks import task_name
from . import sets
from .networks import digest_tickets, feature_kl_by_layer, layer_densities
from .results import NetworkFacts, plain, read_if_whole
from .sets import EvaluationSet, Predictor, Request, Tell, TestSet, at_once
from .summary import evaluation_of, network_facts_path

# What methods call the number of their members.
_MEMBERS = ("tickets", "members", "passes")
_TIMED_SAMPLES = 256  # of a cascade
_FEATURE_SAMPLES = 128  # the first batch, as the paper's authors take it


def predict_dataset(
    ensemble: Ensemble, name: str, data_dir: str | None = None, batch_size: int = 256
) -> Predictions:
    """Predicts the test split of a data set."""
    wanted = TestSet.of(ensemble, name, data_dir).test_set()
    return wanted.make(Predictor(ensemble, batch_size), wanted.info)


def evaluate_run(
    folder: Path, ensemble: Ensemble, data_dir: str | None = None, batch_size: int = 256,
    adjusted: Ensemble | None = None, request: Request | None = None,
    progress: WorkProgress | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Predicts a run's test set and whatever else is asked for, saves it, and returns all scores.

    Saved predictions that the same tickets made are not made again, except those of the test set if
    nothing else is asked for. `adjusted` is what `adjust` returned, to be scored beside the
    ensemble; None keeps earlier findings.

    Raises:
        StoppedError: It was interrupted; what was predicted is saved.
    """
    folder, request = Path(folder), request or Request()
    progress = progress or WorkProgress(quiet=True)
    predictor = Predictor(ensemble, batch_size, progress, digest_tickets(folder))
    test = TestSet.of(ensemble, str(ensemble.info["dataset"]), data_dir, request.samples)
    wanted = _wanted(request, test, ensemble, progress.line)
    sets.refuse_mixture(folder, wanted, predictor.tickets)
    missing = [each for each in wanted if request.fresh or not each.is_saved(folder, predictor)]
    if request.fresh or not (request.asks_for_more and _test_is_saved(folder, test, predictor)):
        missing.insert(0, test.test_set())
    _predict(folder, missing, predictor, talk=request.asks_for_more)
    _write_facts(folder, predictor, test, request)
    found = None if adjusted is None else describe_adjustment(adjusted, ensemble)
    if adjusted is not None and adjusted.early is not None:
        found = {**(found or {}), "seconds": _seconds_in_turn(adjusted, test, batch_size)}
    scores = evaluation_of(folder, adjusted=found, tell=progress.warn, task=ensemble.task)
    scores.save(folder / "metrics.json")
    return scores.as_dict()


def _seconds_in_turn(adjusted: Ensemble, test: TestSet, batch_size: int) -> tuple[float, ...]:
    """What a test sample takes if members answer in turn, and if all do: the best of some tries."""
    first = sets.first_samples(test.split, _TIMED_SAMPLES)
    best = [math.inf, math.inf]
    for _ in range(3):  # the first compiles
        for side, predict in enumerate((adjusted.predict_in_turn, adjusted.predict_proba)):
            began = time.perf_counter()
            predict(first, batch_size)
            best[side] = min(best[side], time.perf_counter() - began)
    return tuple(each / len(first) for each in best)


def _wanted(request: Request, test: TestSet, ensemble: Ensemble, tell: Tell) -> list[EvaluationSet]:
    """The sets that are asked for; what is wrong with any is said before the first is predicted."""
    if not ensemble.task.has_classes:
        words = (
            "corruptions, OoD sets, attacks and ImageNet-A are scored by classes, and "
            f"{task_name(ensemble.task)} has none"
        )
        if request.corruptions or request.ood or request.attacks or request.imagenet_a:
            raise FreeTicketsError(f"{words}: leave them out")
        if request.everything:
            tell(f"{words}: they are left out")
    found = sets.corruption_sets(request.corruptions, test) if request.corruptions else []
    found += sets.ood_sets(request, test)
    if request.imagenet_a:
        found.append(sets.natural_set(request.imagenet_a, test))
    if request.attacks:
        found += sets.attack_sets(request.attacks, request.epsilon, test, len(ensemble))
    if request.features and (len(ensemble) < 2 or len(ensemble) > len(ensemble.tickets)):
        raise FreeTicketsError(
            "feature maps need two networks, this ensemble has one network: leave --features out"
        )
    if not request.everything or not ensemble.task.has_classes:
        return found
    more: dict[str, Callable[[], list[EvaluationSet]]] = {
        "corruptions": lambda: sets.corruption_sets(["all19"], test),
        "OoD sets": lambda: sets.every_ood_set(request, test, tell),
        "attacks": lambda: sets.attack_sets(["fgsm"], request.epsilon, test, len(ensemble)),
    }
    for what, find in more.items():
        try:
            found += find()
        except FreeTicketsError as error:
            tell(f"{what} are left out: {error}")
    return list({each.file: each for each in found}.values())


def _test_is_saved(folder: Path, test: TestSet, predictor: Predictor) -> bool:
    """Whether saved predictions will do: of the same tickets, and of enough samples."""
    wanted = test.test_set()
    if not wanted.is_saved(folder, predictor, but="samples"):
        return False
    path = folder / "predictions" / wanted.file
    try:
        saved = Predictions.load(path, predictor.ensemble.task).labels
    except FreeTicketsError:
        return False  # damaged: they are made again
    return len(saved) >= len(test.split) and np.array_equal(saved, test.whole.labels[: len(saved)])


def _predict(folder: Path, missing: list[EvaluationSet], predictor: Predictor, talk: bool) -> None:
    done = 0
    try:
        with predictor.progress.over(sum(each.size for each in missing)):
            for each in missing:
                predictor.progress.begin(each.name)
                each.predict(folder, predictor)
                done += 1
                if talk:
                    predictor.progress.end(each.name)
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped: {done} of {len(missing)} sets are predicted and saved; run it again to go on"
        ) from None


def _write_facts(folder: Path, predictor: Predictor, test: TestSet, request: Request) -> None:
    path = network_facts_path(folder)
    before = read_if_whole(path, NetworkFacts) or NetworkFacts()
    facts = NetworkFacts(predictor.tickets, layer_densities(predictor.ensemble.tickets))
    samples = min(_FEATURE_SAMPLES, len(test.split))
    asked = request.features or (request.everything and len(predictor.ensemble) > 1)
    fits = predictor.tickets is not None and before.tickets == predictor.tickets
    enough = not request.fresh and before.feature_samples >= samples
    if fits and before.features and (enough or not asked):
        facts = replace(facts, features=before.features, feature_samples=before.feature_samples)
    elif asked:
        try:
            first = sets.first_samples(test.split, samples)
            features = feature_kl_by_layer(predictor.ensemble, first)
            facts = replace(facts, features=features, feature_samples=samples)
        except FreeTicketsError as error:
            if request.features:
                raise
            predictor.progress.line(f"feature maps are left out: {error}")
    if facts != before or not path.exists():
        write_json(path, plain(facts))


def describe_run(config: Mapping[str, Any]) -> str:
    """A run in a few words, for tables."""
    options = config.get("options", {})
    members = next((options[key] for key in _MEMBERS if key in options), 1)
    parts = [f"M={members}"] if members > 1 else []
    if "sparsity" in options:
        parts.append(f"S={options['sparsity']:g}")
    return f"{config['method']} ({', '.join(parts)})" if parts else str(config["method"])


def adjust(
    folder: Path, ensemble: Ensemble, data_dir: str | None = None, batch_size: int = 256, *,
    size: int | None = None, scope: str | None = None, cascade: bool = False,
) -> Ensemble:  # fmt: skip
    """Chooses members, fits a temperature and a cascade on the data that a run's training held out.

    The run's folder says which data that is; `size` is how many members to choose (None for all),
    `scope` is what gets a temperature, "ensemble" or "members" (None for neither). An ensemble that
    has a cascade keeps it, unless it is adjusted otherwise.
    """
    if cascade and ensemble.early is not None and size is None and scope is None:
        return ensemble
    if scope is not None:
        check_scope(scope)
    if not (folder / "config.yaml").exists():
        raise FreeTicketsError(
            f"{folder} has no config.yaml to say which data its training held out: give the folder "
            "that train saved in"
        )
    config = read_run_config(folder)
    if not config.validation and config.validation_data is None:
        raise FreeTicketsError(
            f"{folder} held no data out: train it with --validation 0.1 or --validation-data"
        )
    name, size_of_images = str(ensemble.info["dataset"]), ensemble.info.get("image_size")
    spec = data.get_spec(name, data_dir, size_of_images, ensemble.task)
    held_out: data.Split | data.LazySplit | None
    if config.validation_data is not None:
        held_out = load_validation(config.validation_data, spec, data_dir)
    else:
        _, held_out = data.hold_out(data.load(spec, "train", data_dir), config.validation or 0.0)
    assert held_out is not None
    adjusted = at_once(ensemble)
    if size is not None:
        adjusted = adjusted.select(held_out, held_out.labels, size, batch_size)
    if scope is not None:
        adjusted = adjusted.calibrate(held_out, held_out.labels, scope, batch_size)
    if cascade:
        adjusted = adjusted.cascade(held_out, held_out.labels, batch_size=batch_size)
    return adjusted


def describe_adjustment(adjusted: Ensemble, ensemble: Ensemble) -> dict[str, Any]:
    """What `adjust` did to an ensemble: chosen members, counted from 1, temperature and cascade."""
    if len(ensemble) > len(ensemble.tickets):
        chosen = list(range(1, len(ensemble) + 1))  # in one network: they can't be parted
    else:
        numbers = {id(ticket): number for number, ticket in enumerate(ensemble.tickets, 1)}
        chosen = [numbers[id(ticket)] for ticket in adjusted.tickets]
    temperature = adjusted.temperature and adjusted.temperature.as_dict()
    cascade = adjusted.early and adjusted.early.as_dict()
    return {"chosen": chosen, "temperature": temperature, "cascade": cascade}
