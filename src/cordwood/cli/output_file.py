"""The output of a command: standard output, or a file, which appears when complete and overwrites only with --force."""

import argparse
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cordwood.cli.terminal import convert_output_errors, flush_output
from cordwood.errors import RefusedByService

_STANDARD_OUTPUT = Path("-")
WriteBytes = Callable[[bytes], object]


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to a file, which appears when it is complete"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")


_FORMATS_BY_SUFFIX = {".jsonl": "ndjson", ".arrows": "arrow"}


def format_by_suffix(file: Path | None, formats: Collection[str]) -> str | None:
    """Return the format that belongs to the ending of the file's name, or None if `formats` does not contain it."""
    ending = file.suffix.lower() if file is not None else ""
    named = _FORMATS_BY_SUFFIX.get(ending, ending.removeprefix("."))
    return named if named in formats else None


def unwritable_file_fault(problem: OSError) -> RefusedByService:
    return RefusedByService(f"The file cannot be written: {problem.strerror}.")


def is_standard_output(file: Path | None) -> bool:
    return file is None or file == _STANDARD_OUTPUT


def _write_to_stdout(data: bytes) -> None:
    with convert_output_errors():
        sys.stdout.buffer.write(data)


@contextmanager
def open_output(
    file: Path | None, *, force: bool, check: Callable[[Path], object] = lambda _: None
) -> Iterator[WriteBytes]:
    """Yield a function that writes to the file, or to standard output if the file is None or `-`.

    The output is first written to a temporary file in the same folder. Then `check` is called with this file, which
    raises an error if the content is invalid, and the file is renamed. If the file exists already, raise
    RefusedByService unless `force` is true.
    """
    if file is None or is_standard_output(file):
        flush_output()
        yield _write_to_stdout
        flush_output()
        return
    if file.exists() and not file.is_file() and not file.is_dir():
        # A device or a pipe cannot be replaced by a renamed file, so write to it directly.
        with _convert_write_errors(), file.open("wb") as out:
            yield _writer_converting_errors(out)
        return
    if file.exists() and not force:
        raise RefusedByService(f"{file} exists already.", hint="Use --force to replace it, or choose another name.")
    place = file.resolve() if force else file
    draft = place.with_name(f"{place.name}.part")
    try:
        with _convert_write_errors(), draft.open("wb") as out:
            yield _writer_converting_errors(out)
            out.flush()
            os.fsync(out.fileno())
        check(draft)
        with _convert_write_errors():
            draft.replace(place)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def _convert_write_errors() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise unwritable_file_fault(problem) from problem


def _writer_converting_errors(out: BinaryIO) -> WriteBytes:
    """Return a function that writes to a file and raises RefusedByService if writing fails."""

    def write(data: bytes) -> None:
        with _convert_write_errors():
            out.write(data)

    return write
