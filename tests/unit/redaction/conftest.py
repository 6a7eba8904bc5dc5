"""The redaction functions of each engine, called directly with one text."""

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest

from cordwood.engines.clickhouse.redaction_functions import KEY, functions
from cordwood.engines.duckdb.query.redaction_macros import macros
from cordwood.model.redaction import DEFAULT_RULES, RedactionRules, RedactMode
from tests.chdb_databases import bare_connection

Redact = Callable[..., str]


@pytest.fixture(scope="session")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture(scope="session")
def on_duckdb(connection: duckdb.DuckDBPyConnection) -> Redact:
    loaded_rules: list[RedactionRules] = []

    def redact_text(
        text: str, *, mode: str = "replace", kind: str = "text", rules: RedactionRules = DEFAULT_RULES
    ) -> str:
        if loaded_rules[-1:] != [rules]:
            for mode_ in RedactMode:
                for statement in macros(rules, "key", mode_):
                    connection.execute(statement)
            loaded_rules[:] = [rules]
        cast = "::JSON::VARIANT" if kind == "event" else ""
        cast_back = "::JSON::VARCHAR" if kind == "event" else ""
        rows = connection.execute(f"SELECT redacted_{kind}_{mode}($text{cast}){cast_back}", {"text": text}).fetchall()
        return str(rows[0][0])

    return redact_text


@pytest.fixture(scope="session")
def bare_clickhouse() -> Iterator[Any]:
    opened = bare_connection()
    opened.query(
        "SET output_format_json_escape_forward_slashes = 0, short_circuit_function_evaluation = 'force_enable'"
    )
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def on_clickhouse(bare_clickhouse: Any) -> Redact:
    def redact_text(
        text: str, *, mode: str = "replace", kind: str = "text", rules: RedactionRules = DEFAULT_RULES
    ) -> str:
        name = f"redacted_{kind}_{mode}"
        sql = f"WITH {functions(rules, RedactMode(mode))[name]} SELECT {name}(unhex({{hex:String}}))"
        values = {"hex": text.encode().hex(), KEY: "key"}
        return bytes(bare_clickhouse.query(sql, "RawBLOB", params=values).bytes()).decode()

    return redact_text


@pytest.fixture(params=["duckdb", "clickhouse"])
def redact(request: pytest.FixtureRequest) -> Redact:
    """Return a function that redacts a text on this engine; `kind` is the type of the text: text, json or event."""
    redacted: Redact = request.getfixturevalue(f"on_{request.param}")
    return redacted
