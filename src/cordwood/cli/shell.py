r"""Query the sub-queries of an endpoint interactively, in SQL that ends with a semicolon, or in LQL.

Tab completes sub-queries, columns, fields and words of SQL. The history is kept in the state folder of the user
(XDG_STATE_HOME, else ~/.local/state), in cordwood/history. Inside the shell:

  SELECT ...;        run SQL, which may have several lines
  \lql QUERY         run LQL
  \d [NAME]          list the sub-queries, or the columns and fields of one
  \p [NAME=VALUE]    list the parameters, set one, or remove it with NAME=
  \e [NAME]          show or change the endpoint
  \x                 print rows as records, or as tables again
  \timing            turn the line with the number of rows and the time on or off
  \?                 this list
  \q                 leave, as Ctrl-D does

examples:
  cordwood shell -p project=default
  cordwood shell usage.api-counts -p project=default -p interval=daily
  echo 'select count(*) as n from edge_logs;' | cordwood shell -p project=default
"""

import argparse
import contextlib
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote

from cordwood.cli.arguments import add_parameters_argument
from cordwood.cli.client import ServiceClient, add_service_and_folder_options, open_service_client
from cordwood.cli.query import EndpointQuery, print_notices, table_footer
from cordwood.cli.tables import format_table, terminal_style
from cordwood.cli.terminal import print_message, print_output, print_paged
from cordwood.errors import Fault, RefusedByService

_MAX_HISTORY_LINES: Final = 2_000
_SQL_KEYWORDS: Final = (
    "select", "from", "where", "group by", "order by", "having", "limit", "with", "as", "and", "or", "not", "in",
    "is null", "between", "like", "case", "when", "then", "else", "end", "distinct", "desc", "cross join unnest(",
    "count(*)",
)  # fmt: skip
_COMMANDS: Final = ("\\lql", "\\d", "\\p", "\\e", "\\x", "\\timing", "\\?", "\\q")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "endpoint",
        nargs="?",
        default="logs.all",
        metavar="NAME",
        help="name or UUID of the endpoint (default: logs.all)",
    )
    add_parameters_argument(parser)
    parser.add_argument("--redact", action="store_true", help="redact personal data")
    add_service_and_folder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with open_service_client(arguments) as service:
        shell = Shell(service, arguments.endpoint, dict(arguments.parameter), redacts=arguments.redact)
        if not sys.stdin.isatty():
            return shell.run_lines(sys.stdin)
        print_message(f"Asking {arguments.endpoint}. \\? lists the commands, \\d the sub-queries.")
        with _enable_line_editing(shell.completions):
            return shell.run_lines(_input_lines(shell))


class Shell:
    """A session of the shell: its endpoint, its parameters, and the lines of an incomplete statement.

    An SQL statement may have several lines. It ends with a semicolon at the end of a line.
    """

    def __init__(
        self, service: ServiceClient, endpoint: str, parameters: dict[str, str], *, redacts: bool = False
    ) -> None:
        self.endpoint = endpoint
        self._service_client = service
        self._endpoint_parameters = parameters
        self._redacts_answers = redacts
        self._statement_lines: list[str] = []
        self._prints_vertically = False
        self._prints_footer = sys.stdout.isatty()
        self._is_session_ended = False
        self._cached_sub_queries: list[dict[str, Any]] | None = None
        self.last_exit_status = 0

    @property
    def prompt(self) -> str:
        return f"{self.endpoint}> " if not self._statement_lines else "   -> "

    def run_lines(self, lines: Iterable[str]) -> int:
        """Run all lines. Return 1 if the last statement failed, and 0 otherwise."""
        for line in lines:
            self.process_line(line)
            if self._is_session_ended:
                break
        if self._statement_lines:
            self._run_reporting_faults(lambda: self._run_sql(self._take_statement()))
        return 1 if self.last_exit_status else 0

    def process_line(self, line: str) -> None:
        """Process one line of input: a command of the shell, or a line of an SQL statement."""
        text = line.rstrip("\n")
        if not self._statement_lines and text.strip().startswith("\\"):
            self._run_reporting_faults(lambda: self._run_command(text.strip()))
        elif text.strip() or self._statement_lines:
            self._statement_lines.append(text)
            if text.rstrip().endswith(";"):
                self._run_reporting_faults(lambda: self._run_sql(self._take_statement()))

    def discard_unfinished_statement(self) -> None:
        """Drop the lines of an incomplete statement."""
        self._statement_lines.clear()

    def _take_statement(self) -> str:
        text = "\n".join(self._statement_lines).strip().rstrip(";").rstrip()
        self._statement_lines.clear()
        return text

    def _run_reporting_faults(self, work: Callable[[], None]) -> None:
        try:
            work()
            self.last_exit_status = 0
        except Fault as fault:
            self.last_exit_status = 1
            print_message(fault.one_line_text())

    def _run_sql(self, text: str) -> None:
        if text:
            self._run_query("sql", text)

    def _run_query(self, language: str, text: str) -> None:
        query = EndpointQuery(
            self.endpoint, self._endpoint_parameters, language, text, is_redacted=self._redacts_answers
        )
        began_at = time.monotonic()
        answer, rows = query.fetch_rows(self._service_client)
        below = table_footer(answer, len(rows), time.monotonic() - began_at)
        print_paged(format_table(rows, terminal_style(is_vertical=self._prints_vertically)))
        print_notices(answer.headers)
        if self._prints_footer:
            print_message(below)

    def _run_command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        commands: Mapping[str, Callable[[str], None]] = {
            "\\lql": lambda query: self._run_query("lql", query),
            "\\d": self._describe_sub_queries,
            "\\p": self._set_or_list_parameters,
            "\\e": self._change_endpoint,
            "\\x": self._toggle_vertical,
            "\\timing": self._toggle_footer,
            "\\?": lambda _: print_output(_command_help()),
            "\\q": self._end_session,
        }
        command = commands.get(name)
        if command is None:
            raise RefusedByService(f"{name} is not a command.", hint="\\? lists them.")
        command(rest.strip())

    def _describe_sub_queries(self, name: str) -> None:
        scope = self._sub_queries()
        if not name:
            print_paged(
                format_table(
                    [{"sub_query": one["name"], "columns": len(one["columns"])} for one in scope], terminal_style()
                )
            )
            return
        found = next((one for one in scope if one["name"].lower() == name.lower()), None)
        if found is None:
            raise RefusedByService(f"There is no sub-query {name}.", hint="\\d lists them.")
        print_paged(format_table(list(_columns_and_fields(found)), terminal_style()))

    def _set_or_list_parameters(self, text: str) -> None:
        name, equals, value = text.partition("=")
        if not text:
            print_paged(
                format_table(
                    [{"parameter": each, "value": given} for each, given in self._endpoint_parameters.items()],
                    terminal_style(),
                )
            )
        elif not equals:
            raise RefusedByService(f"{text!r} is not NAME=VALUE.")
        elif value:
            self._endpoint_parameters[name.strip()] = value.strip()
        else:
            self._endpoint_parameters.pop(name.strip(), None)

    def _change_endpoint(self, name: str) -> None:
        if not name:
            print_output(self.endpoint)
            return
        before = self.endpoint
        self.endpoint, self._cached_sub_queries = name, None
        try:
            self._sub_queries()
        except Fault:
            self.endpoint = before
            raise

    def _toggle_vertical(self, _: str) -> None:
        self._prints_vertically = not self._prints_vertically
        print_message("Rows are printed as records." if self._prints_vertically else "Rows are printed as tables.")

    def _toggle_footer(self, _: str) -> None:
        self._prints_footer = not self._prints_footer
        print_message("The footer is on." if self._prints_footer else "The footer is off.")

    def _end_session(self, _: str) -> None:
        self._is_session_ended = True

    def _sub_queries(self) -> list[dict[str, Any]]:
        if self._cached_sub_queries is None:
            path = f"/api/endpoints/{quote(self.endpoint, safe='')}/scope"
            self._cached_sub_queries = self._service_client.send("GET", path).raise_for_error().json()["sub_queries"]
        return self._cached_sub_queries

    def completions(self, prefix: str) -> list[str]:
        """Return the words that may complete `prefix`."""
        if prefix.startswith("\\"):
            return [name for name in _COMMANDS if name.startswith(prefix)]
        functions = importlib.import_module("cordwood.sql.permitted_syntax").PERMITTED_FUNCTIONS
        names = [*_SQL_KEYWORDS, *(f"{name.lower()}(" for name in functions)]
        with contextlib.suppress(Fault):
            for sub_query in self._sub_queries():
                names += [sub_query["name"], *(row["column"] for row in _columns_and_fields(sub_query))]
        lowered = prefix.lower()
        return sorted({name for name in names if name.lower().startswith(lowered)})


def _columns_and_fields(sub_query: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the columns of a sub-query, and the fields that were seen inside these columns."""
    for column in sub_query["columns"]:
        yield {"column": column["name"], "type": str(column["type"] or "")}
        for field in column["fields"]:
            path = ".".join([column["name"], *map(str, field["path"])])
            yield {"column": path, "type": ", ".join(field["kinds"])}


def _command_help() -> str:
    return "\n".join(line for line in (__doc__ or "").splitlines() if re.match(r"  (\\|SELECT)", line))


def _input_lines(shell: Shell) -> Iterator[str]:
    """Yield the typed lines. Ctrl-C discards the current statement, and Ctrl-D ends the session."""
    while True:
        try:
            yield input(shell.prompt)
        except KeyboardInterrupt:
            shell.discard_unfinished_statement()
            print_message("")
        except EOFError:
            print_message("")
            return


@contextmanager
def _enable_line_editing(completions: Callable[[str], list[str]]) -> Iterator[None]:
    """Enable line editing with history and completion during the `with` block, if Python has readline."""
    try:
        # Some installations of Python do not have readline.
        readline = importlib.import_module("readline")
    except ImportError:
        yield
        return
    file = _history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_MAX_HISTORY_LINES)
    readline.set_completer_delims(" \t\n(),=<>+-*/'\"")
    readline.set_completer(_make_completer(completions))
    readline.parse_and_bind("bind ^I rl_complete" if _is_libedit(readline) else "tab: complete")
    try:
        yield
    finally:
        # Only the owner may read the history file, because queries may be private.
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.touch(mode=0o600)
            readline.write_history_file(file)


def _make_completer(completions: Callable[[str], list[str]]) -> Callable[[str, int], str | None]:
    found: list[str] = []

    def complete(prefix: str, number: int) -> str | None:
        if number == 0:
            found[:] = completions(prefix)
        return found[number] if number < len(found) else None

    return complete


def _is_libedit(readline: ModuleType) -> bool:
    return "libedit" in (readline.__doc__ or "")


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "cordwood" / "history"
