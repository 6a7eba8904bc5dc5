"""Terminal output: results to standard output, everything else to standard error."""

import contextlib
import os
import sys


def say(text: str) -> None:
    print(text, flush=True)


def tell(text: str) -> None:
    """Print a line; ignore a closed standard output, because a service must not end with its reader."""
    try:
        say(text)
    except OSError:
        # Otherwise the buffered text would be written again at exit, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Print to standard error; ignore a closed terminal."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
