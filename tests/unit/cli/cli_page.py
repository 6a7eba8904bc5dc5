"""Generator of docs/reference/cli.md from the commands; `make docs` writes the page."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from cordwood.cli.commands import COMMANDS, parser_of_command

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
PAGE_HEAD = """# Commands

`cordwood --help` lists the commands, and `cordwood COMMAND --help` explains one. Results are printed to standard output, messages to
standard error. The exit code is 0 after success, 1 after a failure or refusal, and 2 if the arguments are invalid.

A command that queries or sends events uses the first of these that exists: the service that `--url` (or `CORDWOOD_URL`) names, with the
key in `--key` (or `CORDWOOD_KEY`); the service that runs on the data folder, with a temporary key of that service; the data folder
itself.

This page is generated from the commands: `make docs` writes it.
"""


def reference_page() -> str:
    return "\n".join([PAGE_HEAD, *(line for name in _names() for line in _command(name))]).rstrip() + "\n"


def _names() -> list[str]:
    return [name for group in COMMANDS.values() for name in group]


def _command(name: str) -> Iterator[str]:
    command_parser = parser_of_command(name)
    yield from (f"## cordwood {name}", "", command_parser.description or "", "")
    yield from _options(command_parser)
    for action, below in _actions(command_parser):
        yield from (f"### cordwood {name} {action}", "")
        yield from _options(below)
    yield from ("```text", (command_parser.epilog or "").strip(), "```", "")


def _options(command_parser: argparse.ArgumentParser) -> list[str]:
    rows = [
        _row(action)
        for action in command_parser._actions
        if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    ]
    return ["| option | what it does |", "|---|---|", *rows, ""] if rows else []


def _actions(command_parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in command_parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
    value = "" if action.nargs == 0 or not action.option_strings else f" {_value(action)}"
    return f"| {names}{value} | {action.help or ''} |"


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return " or ".join(f"`{choice}`" for choice in action.choices)
    return f"{action.metavar or action.dest.upper()}"


if __name__ == "__main__":
    PAGE.write_text(reference_page())
