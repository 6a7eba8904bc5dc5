"""The table of commands, the help topics, and the dispatcher. The module of a command is imported when it is run."""

import argparse
import gc
import importlib
import sys
import time
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Final

import msgspec

import cordwood
from cordwood.cli.terminal import flush_output, print_message, print_output
from cordwood.errors import Fault, RefusedByService, did_you_mean

# The approximate start time of the process. It is read here, before the slow imports of the command.
PROCESS_START_MONOTONIC_SECONDS = time.monotonic()

# Exit codes: 1 for a failure, 2 for a usage error, 130 for Ctrl-C (as in shells).
FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class Command(msgspec.Struct, frozen=True):
    """A command: the name of its module in this package, and its one-line summary for `cordwood --help`."""

    module_name: str
    summary: str


COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "Run the service": {
        "serve": Command("serve", "serve endpoints and receive events over HTTP"),
        "reload": Command("reload", "make a running service read its endpoint and streams files again"),
        "healthcheck": Command("healthcheck", "exit with 0 if a service is ready, otherwise with 1"),
        "doctor": Command("doctor", "diagnose an installation"),
        "engine": Command("engine", "create the tables of an external engine"),
        "settings": Command("settings", "print every setting in force and its source"),
    },
    "Query and ingest": {
        "query": Command("query", "run an endpoint and print its rows"),
        "shell": Command("shell", "query an endpoint interactively, with history and completion"),
        "open": Command("open", "open the explorer of a service in the browser"),
        "tail": Command("tail", "print the rows of a query as their events are stored"),
        "import": Command("import_events", "send a file of events to a stream"),
        "sniff": Command("sniff", "print which format a file has, and what its events would be"),
        "migrate": Command("migrate", "copy the events that Logflare stored in PostgreSQL"),
        "export": Command("export_events", "export a stream's events to a Parquet file"),
        "backup": Command("backup", "back up everything that is stored, while the service runs"),
        "restore": Command("restore", "create a data folder from a backup"),
        "quarantine": Command("quarantine", "list, show and replay quarantined events"),
        "alerts": Command("alerts", "list, preview and silence alerts, and test where they are sent"),
        "keys": Command("keys", "create, list, revoke and rotate keys"),
        "mcp": Command("mcp", "offer endpoints and streams as tools to an AI agent"),
    },
    "Write endpoints": {
        "test": Command("test", "run the tests beside endpoint files"),
        "check": Command("check", "compile endpoint and stream files without a service"),
        "compile": Command("compile", "print the SQL that a query compiles to"),
    },
    "Use the terminal": {
        "completion": Command("completion", "print a completion script for bash, zsh or fish"),
    },
}

# The help topics that are not commands. Each has a summary and the text that `cordwood help TOPIC` prints.
_HELP_TOPICS: Final[Mapping[str, tuple[str, str]]] = {
    "lql": (
        "the short query language, with examples",
        """LQL finds events by words and fields, and counts them.

  error                          the message contains the word
  "connection reset"             the message contains the phrase
  ~^GET /rest                    the message matches a regular expression
  -timeout                       the message does not contain the word
  m.status:>=500                 a field of metadata: numbers by > >= < <=, ranges as 200..299
  m.request.path:~^/auth         a field matches a regular expression
  m.tags:@>api                   a list contains the value
  t:last@15m  t:today            the time is in the last 15 minutes, or today
  f:auth_logs                    the sub-query to read
  s:event_message s:m.status     the columns of the answer
  c:count(*) c:group_by(t::minute)   a count for each minute

Parts are joined by AND; OR and parentheses are allowed.

  cordwood query logs.all -p project=default --lql 'f:edge_logs m.response.status_code:>=500 t:last@1h'""",
    ),
    "sandbox": (
        "queries of your own over an endpoint's sub-queries",
        """An endpoint with `sandbox = true` accepts a query of your own, in sql= or lql=. Such a query reads the sub-queries
of the endpoint (such as edge_logs of logs.all) as tables, and nothing else. The endpoint's parameters apply inside them.

  cordwood shell -p project=default                         then \\d lists the sub-queries
  cordwood query logs.all -p project=default --sql 'select count(*) as n from auth_logs'""",
    ),
    "environment": (
        "variables that commands read",
        """Every setting has a variable: CORDWOOD_, the section and the name, such as CORDWOOD_WEB_PORT for web.port.
`cordwood settings` prints all of them with their values and sources.

  CORDWOOD_URL   the service that commands use; without it, the one on the data folder
  CORDWOOD_KEY   the key that commands send to the service
  NO_COLOR       no colours, if it is not empty
  PAGER          the program that shows long tables (default: less); empty: none""",
    ),
    "formats": (
        "how rows are written",
        """  table     for people; on a terminal fitted to its width. --vertical: one line for each value
  json      {"result": [...]}; times in microseconds since 1970
  ndjson    one JSON object a line, as rows arrive
  csv       with a header line; times in ISO 8601
  arrow, parquet   with types; to a file: -o rows.parquet

Over HTTP: ?format= or the header Accept; also format=prometheus.""",
    ),
    "exit-codes": (
        "what a command returns",
        """  0    done
  1    failed, or a check found a problem
  2    the command or its arguments are invalid
  130  stopped by Ctrl-C""",
    ),
}


def run_command_line(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names, or print help, and return the exit code."""
    try:
        try:
            return _run_command_or_print_help(arguments)
        finally:
            flush_output()
    except RefusedByService as fault:
        # Help, or the last text of a command, cannot be written. Faults of commands are printed in `_run_command`.
        print_message(f"cordwood: {fault.one_line_text()}")
        return FAILED
    except BrokenPipeError:
        # The program that reads the output, such as `head`, has ended. Close standard error, so that Python prints no
        # error about it at exit.
        sys.stderr.close()
        return FAILED


def _run_command_or_print_help(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "help" and len(arguments) > 1:
        return _print_help(arguments[1])
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print_output(help_overview_text())
        return 0 if arguments else MISUSED
    if arguments[0] in ("-V", "--version"):
        print_output(f"cordwood {cordwood.__version__}")
        return 0
    command = _commands_by_name().get(arguments[0])
    if command is None:
        print_message(_unknown_command_message(arguments[0]))
        return MISUSED
    return _run_command(arguments[0], command, arguments[1:])


def help_overview_text() -> str:
    """Return the text of `cordwood --help` without importing any command."""
    lines = ["cordwood serves saved, parameterized SQL over log streams by HTTP.", ""]
    for group, commands in COMMANDS.items():
        lines += [f"{group}:", *(f"  {name:<13}{command.summary}" for name, command in commands.items()), ""]
    lines += ["Try it:  cordwood serve --demo", "More:    cordwood COMMAND --help"]
    return "\n".join([*lines, f"         cordwood help TOPIC: {', '.join(_HELP_TOPICS)}"])


def _print_help(topic: str) -> int:
    """Print the help of a command or of a topic."""
    if topic in _commands_by_name():
        print_output(parser_of_command(topic).format_help().rstrip())
        return 0
    if topic in _HELP_TOPICS:
        print_output(_HELP_TOPICS[topic][1])
        return 0
    known = [*_commands_by_name(), *_HELP_TOPICS]
    hint = did_you_mean(topic, known) or f"There are the commands, and: {', '.join(_HELP_TOPICS)}."
    print_message(f"cordwood help: there is no topic {topic}. {hint}")
    return MISUSED


def parser_of_command(name: str) -> argparse.ArgumentParser:
    """Return the argument parser of a command. Its description is the docstring of the command's module."""
    return _build_parser(name, _import_command_module(_commands_by_name()[name]))


def _run_command(name: str, command: Command, arguments: Sequence[str]) -> int:
    try:
        module = _import_without_gc(command)
        code: int = module.run(_build_parser(name, module).parse_args(arguments))
    except Fault as fault:
        print_message(f"cordwood {name}: {fault.one_line_text()}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        gc.unfreeze()
    return code


def _commands_by_name() -> dict[str, Command]:
    return {name: command for group in COMMANDS.values() for name, command in group.items()}


def _import_command_module(command: Command) -> ModuleType:
    return importlib.import_module(f"cordwood.cli.{command.module_name}")


def _import_without_gc(command: Command) -> ModuleType:
    """Import the module of a command without garbage collection, which saves a fifth of the start-up time."""
    gc.disable()
    try:
        return _import_command_module(command)
    finally:
        gc.freeze()
        gc.enable()


def _build_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    description, _, examples = (module.__doc__ or "").partition("\n\n")
    made = argparse.ArgumentParser(
        prog=f"cordwood {name}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(made)
    return made


def _unknown_command_message(name: str) -> str:
    hint = did_you_mean(name, _commands_by_name()) or "`cordwood --help` lists the commands."
    return f"cordwood: {name} is not a command. {hint}"
