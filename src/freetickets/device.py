"""Where networks are computed."""

import torch

from .errors import FreeTicketsError


def find_device(name: str) -> torch.device:
    """A device that is there, by PyTorch's name for it, or "auto"."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # the latter: torch is built without it
        reason = str(error).partition("\n")[0]
        raise FreeTicketsError(f"can't use --device {name}: {reason}") from error
    if found.type == "meta":
        raise FreeTicketsError(f"can't use --device {name}: it has only shapes, no numbers")
    return found
