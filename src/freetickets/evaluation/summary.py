"""metrics.json: every score of a run, computed from its saved predictions alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import metrics
from ..cascade import answers, prefixes
from ..errors import FreeTicketsError
from ..metrics.score import MORE_SCORES
from ..predictions import Predictions, read_info
from ..reading import damaged, read
from ..tasks import Task, stored_task
from . import results
from .networks import digest_tickets
from .sets import Tell, one_set

# Where the predictions of each kind of set lie.
_PLACES = {"shift": "*-c/*.npz", "ood": "ood/*.npz", "attack": "attacks/*.npz"}


def summarise(
    folder: str | Path, *, adjusted: Mapping[str, Any] | None = None, tell: Tell | None = None,
    task: Task | str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Computes all scores of a run from the predictions in its folder; no network is needed.

    Args:
        folder: The run's.
        adjusted: What `evaluate --select`, `--temperature` and `--cascade` found; None: as
            metrics.json says.
        tell: Called with a line for each file of other tickets, which is else an error.
        task: What was learned, if it is a task of the user's own.

    Returns:
        What metrics.json holds; a number that is not finite is None.
    """
    return evaluation_of(folder, adjusted=adjusted, tell=tell, task=task).as_dict()


def evaluation_of(
    folder: str | Path, *, adjusted: Mapping[str, Any] | None = None, tell: Tell | None = None,
    task: Task | str | None = None,
) -> results.Evaluation:  # fmt: skip
    """The same as typed values; see `summarise`."""
    folder = Path(folder)
    test = saved_test(folder, task)
    files = _Files(folder, test, tell)
    path = network_facts_path(folder)
    facts = results.read_if_whole(path, results.NetworkFacts)
    if facts is None and path.exists():
        files.leave_out(path, "is damaged")
    parts: dict[str, Any] = {}
    if facts is not None and facts.tickets == test.info.get("tickets"):
        parts = {"features": facts.features, "layers": facts.layers}
    if test.task.has_classes:
        members, joint = test.members(), test.ensemble()
        parts |= {
            "more": {
                each.key: each.function(members if each.of_members else joint, test.labels)
                for each in MORE_SCORES
                if each.function is not None
            },
            "diversity": _diversity(test),
            "shift": _shift(files, test),
            "natural": _natural(files),
            "ood": _ood(files, test),
            "attacks": _attacks(files, test),
            "adjusted": _adjusted(folder, test, adjusted),
        }
    settings = test.info.get("settings") or None
    return results.Evaluation(
        **test.scores(), settings=settings, task=results.TaskFacts.of(test.task), **parts
    )


def evaluation_of_first(
    folder: str | Path, members: int, *, sets: bool = True
) -> results.Evaluation:
    """The scores of the first members of a run, without a temperature, which was found for all."""
    folder = Path(folder)
    test = _first(saved_test(folder), members)
    parts: dict[str, Any] = {"diversity": _diversity(test)}
    if sets:
        files = _Files(folder, test, None, members)
        parts |= {"ood": _ood(files, test), "attacks": _attacks(files, test)}
    return results.Evaluation(**test.scores(), **parts)


def _first(saved: Predictions, members: int) -> Predictions:
    most = len(saved.outputs)
    if not 1 <= members <= most:
        raise FreeTicketsError(f"members must lie between 1 and {most}, not {members}")
    return saved.adjusted(range(members), None)


def saved_sets(folder: Path, test: Predictions, kind: str) -> list[Path]:
    """The files of one of the `_PLACES` that the networks of the test predictions have made."""
    return _Files(folder, test, None).fitting(_PLACES[kind], kind)


def saved_test(folder: Path, task: Task | str | None = None) -> Predictions:
    """The predictions of a run's test set; the task is given if it is the user's own."""
    found = {path: read_info(path) or {} for path in sorted(folder.glob("predictions/*.npz"))}
    candidates = [path for path, info in found.items() if "kind" not in info]
    if not candidates:
        raise FreeTicketsError(
            f"no predictions of a test set in {folder / 'predictions'}: evaluate {folder} first"
        )
    tickets = digest_tickets(folder)
    fitting = [path for path in candidates if found[path].get("tickets") == tickets]
    if len(fitting) > 1:
        names = " and ".join(map(str, fitting[:2]))
        raise FreeTicketsError(f"{names} are two test sets of one run: move one of them away")
    path = (fitting or candidates)[0]
    test = Predictions.load(path, stored_task(found[path], task))
    if tickets is not None and test.info.get("tickets") != tickets:
        raise FreeTicketsError(
            f"{path} was made by other tickets: run 'freetickets evaluate {folder}'"
        )
    return test


@dataclass(frozen=True)
class _Files:
    """The saved predictions of a run that fit those of its test set."""

    run: Path
    test: Predictions
    tell: Tell | None
    members: int | None = None

    def fitting(self, pattern: str, kind: str) -> list[Path]:
        found = []
        for path in sorted((self.run / "predictions").glob(pattern)):
            info, test = read_info(path), self.test.info
            if info is None:
                self.leave_out(path, "is damaged")
            elif info.get("kind") != kind:
                continue
            elif info.get("tickets") != test.get("tickets"):
                self.leave_out(path, "was made by other tickets")
            elif "images" in info and info["images"] != test.get("images"):
                self.leave_out(path, "is of other test images")
            else:
                found.append(path)
        return found

    def load(self, path: Path) -> Predictions:
        saved = Predictions.load(path)
        return saved if self.members is None else _first(saved, self.members)

    def leave_out(self, path: Path, reason: str) -> None:
        if self.tell is None:
            raise FreeTicketsError(f"{path} {reason}: remove it, or run evaluate for it again")
        self.tell(f"{path} {reason}: it is left out; run evaluate for it again")


def _diversity(test: Predictions) -> results.Diversity | None:
    members = test.members()
    if len(members) < 2:
        return None
    return results.Diversity(
        metrics.disagreement(members),
        metrics.kl(members),
        metrics.kl(members, ordered=False),
        metrics.disagreement_matrix(members),
        metrics.kl_matrix(members),
        tuple(metrics.disagreement_by_class(members, test.labels).tolist()),
    )


def _severities(path: Path) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]]:
    """Of one corruption type, read when they are asked for."""
    for part in Predictions.load(path).parts:
        yield part.ensemble(), part.labels


def _shift(files: _Files, test: Predictions) -> dict[str, results.Shift]:
    found = {}
    order = {name: place for place, name in enumerate(metrics.CORRUPTION_SETS["all19"])}
    for folder in sorted(path for path in files.run.glob("predictions/*-c") if path.is_dir()):
        paths = files.fitting(f"{folder.name}/*.npz", "shift")
        paths.sort(key=lambda path: (order.get(path.stem, len(order)), path.stem))
        infos = [read_info(path) or {} for path in paths]
        if not paths:
            continue
        if len(set(map(one_set, infos))) > 1:
            files.leave_out(folder, "holds types of different samples or sources")
            continue
        scores = metrics.shift_scores({path.stem: _severities(path) for path in paths})
        found[folder.name] = results.Shift(
            source=infos[0].get("source"),
            samples=int(np.min(scores.samples)),
            types=scores.types,
            severities=tuple(int(part) for part in infos[0]["parts"]),
            scores=scores.scores,
            means=_means(scores, test.outputs.shape[-1]),
            frost=next((info["frost"] for info in infos if "frost" in info), None),
        )
    return found


def _means(scores: metrics.ShiftScores, classes: int) -> dict[str, dict[str, float]]:
    """The means over each known set of types that all were measured, or else over all of them."""
    known = {name: metrics.corruption_set(name, classes) for name in metrics.CORRUPTION_SETS}
    found = {name: scores.mean(types) for name, types in known.items()
             if set(types) <= set(scores.types)}  # fmt: skip
    if set(scores.types) not in [set(known[name]) for name in found]:
        found["given"] = scores.mean()
    return found


def _natural(files: _Files) -> dict[str, dict[str, dict[str, float]]]:
    found = {}
    for path in files.fitting("*.npz", "natural"):
        saved = Predictions.load(path)
        classes = saved.info["classes_200"]
        place = {label: row for row, label in enumerate(classes)}
        with damaged(path):
            labels = np.array([place[int(label)] for label in saved.labels])
            # Cut to the set's classes and renormalised, each member for itself, before the mean.
            cut = metrics.restrict_classes(saved.outputs, classes).astype(np.float32)
            found[path.stem] = {
                "1000-way": saved.scores()["ensemble"],
                "200-way": Predictions(cut, labels, saved.info).scores()["ensemble"],
            }
    return found


def _ood(files: _Files, test: Predictions) -> dict[str, results.Unknown]:
    paths = files.fitting(_PLACES["ood"], "ood")
    inside = novelties(test) if paths else {}
    found = {}
    most = test.info.get("samples")
    for path in paths:
        saved = files.load(path)
        count = saved.info.get("samples")  # where only the first were predicted, those are compared
        if most is not None and (count is None or count > most):
            files.leave_out(path, f"is for more than the {most:,} test samples that are saved")
            continue
        outside = novelties(saved)
        detected = {}
        for score, known in inside.items():
            pair = known[:count], outside[score]
            detected[score] = results.Detection(
                metrics.auroc(*pair), metrics.aupr(*pair), metrics.fpr95(*pair)
            )
        found[path.stem] = results.Unknown(len(saved.labels), **detected)
    return found


def novelties(saved: Predictions) -> dict[str, npt.NDArray[np.float64]]:
    """How unknown each sample is, by each score; one member has no mutual information."""
    members, joint = saved.members(), saved.ensemble()
    found = {score: metrics.novelty(joint, score) for score in metrics.NOVELTY_SCORES[:2]}
    if len(members) > 1:
        found["mutual_information"] = metrics.novelty(members, "mutual_information")
    return found


def _attacks(files: _Files, test: Predictions) -> dict[str, results.Attack]:
    found = {}
    for path in files.fitting(_PLACES["attack"], "attack"):
        saved = files.load(path)
        parts, labels = saved.parts, saved.parts[0].labels
        if not np.array_equal(labels, test.labels[: len(labels)]):
            files.leave_out(path, "is of other test samples")
            continue
        joint = [metrics.accuracy(part.ensemble(), labels) for part in parts]
        found[path.stem] = results.Attack(
            epsilon=saved.info["epsilon"], samples=len(labels),
            clean=metrics.accuracy(test.ensemble()[:, : len(labels)], labels), min=min(joint),
            mean=float(np.mean(joint)), max=max(joint),
            transfer=metrics.transfer_matrix([part.members() for part in parts], labels),
            steps=saved.info.get("steps"), ensemble=tuple(joint),
        )  # fmt: skip
    return found


def network_facts_path(folder: Path) -> Path:
    """Where a run keeps what only its networks can tell."""
    return folder / "predictions" / "networks.json"


def _adjusted(
    folder: Path, test: Predictions, given: Mapping[str, Any] | None
) -> results.Adjusted | None:
    tickets, found = test.info.get("tickets"), None
    if given is not None:
        found = read(results.Adjusted, {"tickets": tickets, **given})
    # A file that is damaged will be written again.
    elif tickets and (saved := results.read_if_whole(folder / "metrics.json", results.Evaluation)):
        found = saved.adjusted
    if found is None or found.tickets != tickets:
        return None
    if not 1 <= max(found.chosen, default=0) <= len(test.outputs):
        return None
    # Files and tables count from 1.
    chosen = test.adjusted([number - 1 for number in found.chosen], found.temperature)
    scores = {key: chosen.scores()[key] for key in ("members", "member_mean", "ensemble")}
    if (cascade := found.cascade) is not None and cascade.members == len(found.chosen):
        said = chosen.members()
        joints = prefixes(said, cascade.combine, found.temperature)
        asked = cascade.asked(said, joints)
        scores["in_turn"] = test.task.measure(answers(joints, asked)[None], test.labels)
        scores["asked"] = tuple(np.bincount(asked, minlength=len(said) + 1)[1:].tolist())
    return replace(found, **scores)
