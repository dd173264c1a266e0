"""The networks that tickets are of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial as bind
from typing import Any

import torch
from torch import nn

from .config import Config
from .errors import FreeTicketsError
from .methods import Method, get_method
from .models import create_model
from .ticket import Ticket


def network_of(
    ticket: Ticket, build: Callable[[], nn.Module] | None, method: Method | None
) -> nn.Module:
    """Returns the network of a ticket, which `build` makes if it is not one of FreeTickets' own."""
    if build is None:
        name = ticket.info.get("model")
        if not name or ":" in name:
            raise FreeTicketsError(
                f"this ensemble's network is your own ({name or 'a Python object'}): pass the same "
                "factory as model= (or --model module:function)"
            )
        build = bind(create, ticket.info)
    with torch.random.fork_rng(devices=[]):  # the new network's values are replaced at once
        model = build()
        # A ticket made by hand may say no method: then nothing has transformed its network.
        name = ticket.info.get("method", "dense")
        # Else, whatever the options are, which may name parts of somebody's own, they don't count.
        if method is None and get_method(name).transform is not Method.transform:
            method = Config(method=name, options=ticket.info.get("options", {})).make_method()
        if method is not None:
            model = method.transform(model)
    try:
        model.load_state_dict(ticket.state)
    except RuntimeError as error:
        reason = str(error).replace("\n", " ").replace("\t", "")[:200]
        raise FreeTicketsError(f"the network does not fit the ticket: {reason}") from error
    return model


def create(info: Mapping[str, Any]) -> nn.Module:
    """Returns a new network as a ticket's info describes it, before a method transforms it."""
    shape = tuple(info["input_shape"])
    outputs = info.get("outputs") or len(info["classes"])  # older tickets are of classes
    return create_model(info["model"], shape, outputs, **info["model_options"])
