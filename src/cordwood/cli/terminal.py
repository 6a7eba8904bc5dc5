"""What is written to a terminal: results to standard output, everything about them to standard error."""

import contextlib
import sys


def say(text: str) -> None:
    print(text, flush=True)


def note(text: str) -> None:
    """A terminal that is gone has nobody to tell."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
