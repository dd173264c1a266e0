"""The command line: one file a command. Nothing here imports torch before a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ..errors import FreeTicketsError, StoppedError
from .parser import make_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0, 2 for a mistake, 130 if it was interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parsed = make_parser(arguments).parse_args(arguments)
        code: int = parsed.run(parsed) or 0
        sys.stdout.flush()
        return code
    except FreeTicketsError as error:
        print(f"freetickets: {error}", file=sys.stderr)
        return 130 if isinstance(error, StoppedError) else 2
    except KeyboardInterrupt:
        print("freetickets: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has gone (`| head`): what is left to flush has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
