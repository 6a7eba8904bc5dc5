"""A bare connection with the macros of redaction."""

from collections.abc import Callable, Iterator

import duckdb
import pytest

from cordwood.engines.duckdb.redaction import macros
from cordwood.model.redaction import SHIPPED_RULES, RedactionRules, RedactMode

Redact = Callable[..., str]


@pytest.fixture(scope="session")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.fixture(scope="session")
def redact(connection: duckdb.DuckDBPyConnection) -> Redact:
    """The text as an answer would have it; `kind` is the macro, `rules` are in force from then on."""
    made: list[RedactionRules] = []

    def redacted(text: str, *, mode: str = "replace", kind: str = "text", rules: RedactionRules = SHIPPED_RULES) -> str:
        if made[-1:] != [rules]:
            for each in RedactMode:
                for statement in macros(rules, "key", each):
                    connection.execute(statement)
            made[:] = [rules]
        cast = "::JSON::VARIANT" if kind == "event" else ""
        back = "::JSON::VARCHAR" if kind == "event" else ""
        found = connection.execute(f"SELECT redacted_{kind}_{mode}($text{cast}){back}", {"text": text}).fetchall()
        return str(found[0][0])

    return redacted
