"""Command-line arguments for how to read a file of events."""

import argparse

from cordwood.app.event_files import FORMATS, Reading
from cordwood.ingest.formats.csv import AS_TEXT, ColumnTypes, CsvOptions, parse_delimiter


def add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--as", dest="read_as", choices=FORMATS, help="the format of the file (default: recognised)")
    parser.add_argument(
        "--types",
        type=_types,
        default=AS_TEXT,
        metavar="TYPES",
        help="types of CSV's columns: auto, or COLUMN=TYPE,… (default: all are texts)",
    )
    parser.add_argument(
        "--delimiter", type=_delimiter, metavar="CHARACTER", help="delimiter of CSV (default: detected)"
    )


def reading_of(arguments: argparse.Namespace) -> Reading:
    return Reading(arguments.read_as, CsvOptions(arguments.delimiter, arguments.types))


def _types(text: str) -> ColumnTypes:
    try:
        return ColumnTypes.parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def _delimiter(text: str) -> str:
    try:
        return parse_delimiter(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
