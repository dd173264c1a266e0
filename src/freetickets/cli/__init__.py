"""The command line: one file a command. Nothing here imports torch before a command runs."""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Sequence

from ..errors import FreeTicketsError, StoppedError, is_out_of_memory
from .parser import make_parser

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_MEMORY = (
    "out of memory; what was saved is untouched: free some and run the same command again, or use "
    "a smaller --batch-size, a smaller --model or fewer --jobs"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit code: 0, 2 for a mistake, 130 if it was interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        parser = make_parser(arguments)
        if not arguments:
            parser.print_help()
            return 0
        parsed = parser.parse_args(arguments)
        answer = parsed.run(parsed)
        if parsed.json and answer is not None:
            print(json.dumps(answer, indent=2))
        sys.stdout.flush()
        return 0
    except FreeTicketsError as error:
        return _fail(str(error), 130 if isinstance(error, StoppedError) else 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:  # the reader has gone (`| head`)
        _give_up_output()
        return 0
    except (MemoryError, OSError, RuntimeError) as error:
        if is_out_of_memory(error):
            return _fail(_NO_MEMORY)
        # All files but this one are written by `storage`, which says it in its own words.
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            _give_up_output()
            return _fail(f"can't print: {error.strerror}")
        raise


def _fail(reason: str, code: int = 2) -> int:
    with contextlib.suppress(OSError):  # where nothing can be said, the code still can
        print(f"freetickets: {reason}", file=sys.stderr)
    return code


def _give_up_output() -> None:
    """What is left to flush has nowhere to go: Python would try it again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
