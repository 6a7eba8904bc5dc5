"""Print the SQL into which a query is compiled, or its errors with their positions.

Without --endpoint, the query can read only the CTEs of its own WITH. With --endpoint, it is a sandbox query over the
endpoint's sub-queries; without a file, the endpoint's own query is compiled. --lql prints the SQL, in BigQuery's
dialect, into which a query in LQL is translated.

examples:
  echo 'select 1 as one' | cordwood compile -
  cordwood compile --endpoint logs.all slow.sql
  cordwood compile --endpoint usage.api-counts
  cordwood compile --endpoint logs.all --lql 'f:edge_logs m.response.status_code:>=500'
  cordwood compile --jsonl < queries.jsonl
  cordwood compile --prelude --engine duckdb
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cordwood.app.checks import COMPILE_TARGET_FACTORIES, read_and_check_definitions
from cordwood.catalog.catalog import CatalogSources
from cordwood.cli.terminal import convert_output_errors, print_message, print_output
from cordwood.dialects import compile_saved_query, compile_sql_query, explain_lql_query, read_endpoint
from cordwood.errors import COMPILE_FAULTS, BadBody, Fault, UnknownEndpoint
from cordwood.sql.compile import compile_standalone_query
from cordwood.sql.program import EndpointProgram
from cordwood.sql.stages import Statement, Target

# For each engine, the statements that --prelude prints: they define functions that compiled SQL calls. At present, no
# engine needs such functions.
_PRELUDE_SQL_BY_ENGINE: Final[Mapping[str, str]] = {"clickhouse": "", "duckdb": ""}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="file of SQL; - is standard input")
    parser.add_argument(
        "--engine",
        default="duckdb",
        choices=sorted(COMPILE_TARGET_FACTORIES),
        help="the target engine (default: duckdb)",
    )
    parser.add_argument("--endpoint", metavar="NAME", help="compile over this endpoint's sub-queries")
    parser.add_argument("--endpoints", type=Path, metavar="DIR", help="folder of your own endpoint files")
    parser.add_argument("--lql", metavar="TEXT", help="print the SQL that this LQL is translated to, over --endpoint")
    parser.add_argument("--jsonl", action="store_true", help='read lines {"sql": …}, write lines {"sql"} or {"error"}')
    parser.add_argument("--prelude", action="store_true", help="print the statements that must run before the SQL")


def run(arguments: argparse.Namespace) -> int:
    if arguments.prelude:
        with convert_output_errors():
            sys.stdout.write(_PRELUDE_SQL_BY_ENGINE[arguments.engine])
        return 0
    target = COMPILE_TARGET_FACTORIES[arguments.engine]()
    program = _load_program(arguments.endpoint, arguments.endpoints) if arguments.endpoint else None
    if arguments.lql is not None:
        return _explain_lql(arguments.lql, target, program)
    if arguments.jsonl:
        return _compile_json_lines(target, program)
    return _compile_file(arguments.file, target, program)


def _load_program(name: str, folder: Path | None) -> EndpointProgram:
    contents = read_and_check_definitions(CatalogSources(endpoints_folder=folder))
    endpoint = next((one for one in contents.endpoints if name in (one.name, str(one.id))), None)
    if endpoint is None:
        known = ", ".join(one.name for one in contents.endpoints)
        raise UnknownEndpoint(f"There is no endpoint {name!r}.", hint=f"There are: {known}.")
    return read_endpoint(endpoint)


def _compile_file(file: str | None, target: Target, program: EndpointProgram | None) -> int:
    text = None if file is None and program is not None else _read_query_text(file)
    try:
        statement = _compile_query(text, target, program)
    except COMPILE_FAULTS as fault:
        print_message(_fault_with_caret(fault, text or ""))
        return 1
    for line in _statement_summary_comments(statement):
        print_output(line)
    print_output(statement.sql)
    return 0


def _explain_lql(text: str, target: Target, program: EndpointProgram | None) -> int:
    if program is None:
        print_message("--lql needs the sub-queries of an endpoint: name it with --endpoint.")
        return 2
    try:
        print_output(explain_lql_query(program, text, target, {}))
    except COMPILE_FAULTS as fault:
        print_message(_fault_with_caret(fault, text))
        return 1
    return 0


def _read_query_text(file: str | None) -> str:
    """Return the text of a query from a file or standard input; raise BadBody if the text cannot be read."""
    try:
        body = sys.stdin.buffer.read() if file is None or file == "-" else Path(file).read_bytes()
    except OSError as problem:
        raise BadBody(f"{file} cannot be read: {problem.strerror}.") from problem
    try:
        return body.decode()
    except UnicodeDecodeError as problem:
        name = "Standard input" if file in (None, "-") else file
        raise BadBody(f"{name} is not text in UTF-8.") from problem


def _compile_query(text: str | None, target: Target, program: EndpointProgram | None) -> Statement:
    """Compile a query without the shapes of streams.

    Without shapes, the compiler cannot know which values are arrays, so every UNNEST handles both objects and arrays.
    """
    if program is None:
        return compile_standalone_query(text or "", target)
    if text is None:
        return compile_saved_query(program, target, {})
    return compile_sql_query(program, text, target, {})


def _statement_summary_comments(statement: Statement) -> list[str]:
    read = [slot for slot in statement.slots if slot.is_read]
    slots = ", ".join(f"{slot.name} {slot.parameter.type if slot.parameter else 'TIMESTAMP'}" for slot in read)
    facts = {"parameters": slots, "sub-queries": ", ".join(statement.sub_queries)}
    return [f"-- {name}: {value}" for name, value in facts.items() if value]


def _fault_with_caret(fault: Fault, text: str) -> str:
    lines = [f"{fault.code}: {fault.message}"]
    if fault.span is not None:
        written = text.splitlines() or [""]
        line = written[min(fault.span.line, len(written)) - 1]
        lead = "".join("\t" if letter == "\t" else " " for letter in line[: fault.span.column - 1])
        number = f"{fault.span.line} | "
        lines += [number + line, " " * len(number) + lead + "^"]
    return "\n".join([*lines, fault.hint] if fault.hint else lines)


def _compile_json_lines(target: Target, program: EndpointProgram | None) -> int:
    """Compile the query in each JSON line of standard input, and print a JSON line with the result.

    The result of an invalid line or query is an error.
    """
    for line in sys.stdin.buffer:
        if line.strip():
            print_output(json.dumps(_compile_json_line(line, target, program), ensure_ascii=False))
    return 0


def _compile_json_line(line: bytes, target: Target, program: EndpointProgram | None) -> Mapping[str, object]:
    try:
        text = json.loads(line)["sql"]
        return {"sql": _compile_query(str(text), target, program).sql}
    except Fault as fault:
        place = {"line": fault.span.line, "column": fault.span.column} if fault.span else {}
        return {"error": {"code": fault.code, "message": fault.message, **place}}
    except (ValueError, KeyError, TypeError):
        return {"error": {"code": "request.bad-body", "message": 'A line must be a JSON object with "sql".'}}
