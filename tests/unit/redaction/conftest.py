"""Fixtures that call the redaction functions of each engine directly."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb
import pytest

from cordwood.engines.clickhouse.redaction_functions import REDACTION_KEY_PARAMETER, redaction_function_definitions
from cordwood.engines.duckdb.query.redaction_macros import create_macro_statements
from cordwood.model.redaction import DEFAULT_REDACTION_RULES, RedactionRules, RedactMode
from tests.chdb_databases import bare_connection

Redact = Callable[..., str]
RedactEach = Callable[..., list[str]]


@pytest.fixture(scope="session")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture(scope="session")
def redact_on_duckdb(connection: duckdb.DuckDBPyConnection) -> RedactEach:
    loaded_rules: list[RedactionRules] = []

    def redact_texts(
        texts: Sequence[str],
        *,
        mode: str = "replace",
        kind: str = "text",
        rules: RedactionRules = DEFAULT_REDACTION_RULES,
    ) -> list[str]:
        if loaded_rules[-1:] != [rules]:
            for mode_ in RedactMode:
                for statement in create_macro_statements(rules, "key", mode_):
                    connection.execute(statement)
            loaded_rules[:] = [rules]
        cast = "::JSON::VARIANT" if kind == "event" else ""
        cast_back = "::JSON::VARCHAR" if kind == "event" else ""
        if len(texts) == 1:
            sql = f"SELECT redacted_{kind}_{mode}($text{cast}){cast_back}"
            rows = connection.execute(sql, {"text": texts[0]}).fetchall()
        else:
            sql = (
                f"SELECT redacted_{kind}_{mode}(text{cast}){cast_back} FROM"
                " (SELECT unnest($texts) AS text, generate_subscripts($texts, 1) AS place) ORDER BY place"
            )
            rows = connection.execute(sql, {"texts": list(texts)}).fetchall()
        return [str(row[0]) for row in rows]

    return redact_texts


@pytest.fixture(scope="session")
def bare_clickhouse() -> Iterator[Any]:
    opened = bare_connection()
    opened.query(
        "SET output_format_json_escape_forward_slashes = 0, short_circuit_function_evaluation = 'force_enable'"
    )
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def redact_on_clickhouse(bare_clickhouse: Any) -> RedactEach:
    def redact_texts(
        texts: Sequence[str],
        *,
        mode: str = "replace",
        kind: str = "text",
        rules: RedactionRules = DEFAULT_REDACTION_RULES,
    ) -> list[str]:
        name = f"redacted_{kind}_{mode}"
        function = redaction_function_definitions(rules, RedactMode(mode))[name]
        if len(texts) == 1:
            sql = f"WITH {function} SELECT hex({name}(unhex({{hex:String}})))"
        else:
            sql = (
                f"WITH {function} SELECT hex({name}(unhex(one.1))) FROM (SELECT arrayJoin(arrayZip("
                "splitByChar(',', {hex:String}) AS texts, arrayEnumerate(texts))) AS one) ORDER BY one.2"
            )
        values = {"hex": ",".join(text.encode().hex() for text in texts), REDACTION_KEY_PARAMETER: "key"}
        lines = bytes(bare_clickhouse.query(sql, "TSV", params=values).bytes()).decode().removesuffix("\n").split("\n")
        return [bytes.fromhex(line).decode() for line in lines]

    return redact_texts


@pytest.fixture(params=["duckdb", "clickhouse"])
def redact_each(request: pytest.FixtureRequest) -> RedactEach:
    """Return a function that redacts texts with a single query on this engine.

    `kind` is the type of the texts: text, json or event. A single text is a constant in the query, and several texts
    are a column.
    """
    redacted: RedactEach = request.getfixturevalue(f"redact_on_{request.param}")
    return redacted


@pytest.fixture
def redact(redact_each: RedactEach) -> Redact:
    """Return a function that redacts one text on this engine."""
    return lambda text, **options: redact_each([text], **options)[0]
