"""What is written to a terminal: results to standard output, everything about them to standard error."""

import sys


def say(text: str) -> None:
    print(text, flush=True)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
