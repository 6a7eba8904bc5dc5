"""What is written to a terminal: results to standard output, everything about them to standard error."""

import contextlib
import os
import sys


def say(text: str) -> None:
    print(text, flush=True)


def tell(text: str) -> None:
    """As `say`, by what goes on when nobody reads it: whoever wants it to stop has a signal for that."""
    try:
        say(text)
    except OSError:
        # What is still unsaid would be tried again at the end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """A terminal that is gone has nobody to tell."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
