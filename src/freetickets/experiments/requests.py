"""Requests: what evaluation has to predict of a cell, by what its experiments need."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..evaluation.request import Request
from .experiment import Needs
from .scales import Stand
from .stand_ins import StandIns


def requests_for(
    stand: Stand, needs: Needs, members: int, stand_ins: StandIns
) -> tuple[list[Request], list[str]]:
    """What evaluation is asked for, set by set, and what is said of it.

    Args:
        stand: What stands for the data.
        needs: What is to be measured.
        members: Of the ensemble.
        stand_ins: Makes the sets that are not there yet.
    """
    limited = Request(samples=stand.samples, resize=True)
    requests, notes = [], []
    if needs.corruptions:
        stand_ins.corrupt(stand, needs.corruptions)
        requests.append(replace(limited, corruptions=needs.corruptions))
    found = stand_ins.ood(stand, needs.ood)
    for name, (source, words) in found.items():
        requests.append(replace(limited, ood=(source,), samples=stand.unknown or stand.samples))
        if words != name:
            notes.append(f"{words} stands for {name}")
    for name in needs.ood:
        if name not in found and name != stand.data.source:
            notes.append(f"left out: {name}, which is not in the data folder")
    if needs.attacks:
        requests.append(replace(limited, attacks=needs.attacks))
    if needs.features and members > 1:
        requests.append(replace(limited, features=True))
    if needs.imagenet_a:
        folder = stand_ins.natural(stand)
        if folder is None:
            notes.append("left out: imagenet-a, which is not in the data folder")
        else:
            requests.append(replace(limited, imagenet_a=str(folder)))
            if not stand.data.is_whole:
                notes.append("turned test images of some classes stand for imagenet-a")
    return requests, notes


def joined(requests: list[Request]) -> list[Request]:
    """One request for all that ask for as many samples."""
    found: dict[int | None, Request] = {}
    for request in requests:
        before = found.get(request.samples, request)
        both: dict[str, Any] = {}
        for each in fields(request):
            one, other = getattr(before, each.name), getattr(request, each.name)
            several = isinstance(one, tuple)
            both[each.name] = tuple(dict.fromkeys(one + other)) if several else one or other
        found[request.samples] = replace(request, **both)
    return list(found.values())
