"""Terminal output: results to standard output and everything else to standard error, the pager, and progress lines."""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

import msgspec

from cordwood.errors import RefusedByService


@contextlib.contextmanager
def convert_output_errors() -> Iterator[None]:
    """Raise RefusedByService if the `with` block cannot write to standard output, for example to a full disk.

    BrokenPipeError is not converted: it means that the reader of the output has ended, which is not an error.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as problem:
        _discard_output()
        raise RefusedByService(f"Standard output cannot be written: {problem.strerror}.") from problem


def _discard_output() -> None:
    """Replace standard output by /dev/null.

    Otherwise Python would try at exit to write the buffered text again, and fail.
    """
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_output(text: str) -> None:
    """Print a text to standard output; raise RefusedByService if it cannot be written."""
    with convert_output_errors():
        print(text, flush=True)


def flush_output() -> None:
    """Write the buffered text to standard output; raise RefusedByService if it cannot be written."""
    # Python has no standard output if the caller closed it before the start.
    if sys.stdout is not None:
        with convert_output_errors():
            sys.stdout.flush()


def print_line_unless_output_closed(text: str) -> None:
    """Print a line to standard output; do nothing if the output is closed.

    The service uses this function, so that it does not end when the reader of its output ends.
    """
    try:
        print(text, flush=True)
    except OSError:
        _discard_output()


def print_message(text: str) -> None:
    """Print lines to standard error, without control characters. If standard error is closed, do nothing."""
    with contextlib.suppress(OSError):
        print("\n".join(map(printable_text, text.split("\n"))), file=sys.stderr, flush=True)


def printable_text(text: str) -> str:
    """Return the text on one line, with a space in place of each character that cannot be printed."""
    return text if text.isprintable() else "".join(one if one.isprintable() else " " for one in text)


class ByteProgress(msgspec.Struct):
    byte_count: int = 0
    began_at: float = msgspec.field(default_factory=time.monotonic)
    _printed_at: float = 0.0

    def add(self, byte_count: int) -> None:
        self.byte_count += byte_count
        if sys.stderr.isatty() and time.monotonic() - self._printed_at > 0.1:
            self._printed_at = time.monotonic()
            print(f"\r{self.progress_line()}\x1b[K", end="", file=sys.stderr, flush=True)

    def end_progress_line(self) -> None:
        if self._printed_at:
            print_message("")

    def progress_line(self) -> str:
        seconds = max(time.monotonic() - self.began_at, 1e-9)
        return f"{self.byte_count / 1e6:,.1f} MB ({self.byte_count / 1e6 / seconds:,.1f} MB/s)"


def print_paged(text: str) -> None:
    """Print a text. On a terminal, show it through the pager if it has more lines than the screen."""
    if not sys.stdout.isatty() or text.count("\n") + 1 < shutil.get_terminal_size().lines:
        print_output(text)
        return
    # Set the same options for `less` as git does: keep colours, do not wrap lines, and exit at once if the text fits.
    command = shlex.split(os.environ.get("PAGER", "less"))
    environment = {"LESS": "FRSX", **os.environ}
    try:
        # If the pager ends before it has read the whole text, subprocess.run ignores the resulting BrokenPipeError.
        subprocess.run(command, input=f"{text}\n".encode(), env=environment, check=False)  # noqa: S603 - the user's own
    except (OSError, IndexError):
        # The pager is not installed, or PAGER is empty. So print the text directly.
        print_output(text)
