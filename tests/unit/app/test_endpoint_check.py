"""Endpoints are compiled when their files are read, and errors have their position in the file."""

from importlib import resources

import pytest

from cordwood.app.checks import COMPILE_TARGET_FACTORIES, check_endpoint
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.stream_file import read_stream_file
from cordwood.errors import BadEndpointFile

SHIPPED_FOLDER = resources.files("cordwood") / "endpoints"
STREAMS = read_stream_file("streams.toml", (SHIPPED_FOLDER / "streams.toml").read_text())


def check_text(text: str, engine: str = "duckdb") -> None:
    check_endpoint(read_endpoint_file("my.sql", text), STREAMS, COMPILE_TARGET_FACTORIES[engine]())


@pytest.mark.parametrize("engine", COMPILE_TARGET_FACTORIES)
@pytest.mark.parametrize("name", ["logs.all.sql", "usage.api-counts.sql"])
def test_shipped_endpoints_compile_for_every_engine(name: str, engine: str) -> None:
    check_text((SHIPPED_FOLDER / name).read_text(), engine)


@pytest.mark.parametrize(
    ("sql", "place", "message"),
    [
        ("selct 1", "3:1", ""),
        ("select @x as x", "3:8", "x"),
        ("select *\nfrom `no.stream`", "4:6", "no.stream"),
        ("select nosuch(1) as x", "3:8", "NOSUCH"),
        ("select 1; select 2", "3:", ""),
        ("delete from `postgres.logs` where true", "3:1", ""),
        ("select json_value(t.metadata, t.event_message) as x\nfrom `postgres.logs` as t", "3:8", "JSON path"),
    ],
)
def test_an_endpoint_that_does_not_compile_is_refused_with_its_position(sql: str, place: str, message: str) -> None:
    with pytest.raises(BadEndpointFile) as caught:
        check_text(f'/*\nname = "a" */\n{sql}')
    assert message in caught.value.message
    assert str(caught.value.span).startswith(f"my.sql:{place}")


def test_an_unknown_stream_is_refused_with_the_most_similar_one() -> None:
    with pytest.raises(BadEndpointFile) as caught:
        check_text('/* name = "a" */ select id from `postgres.logz`')
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("Did you mean postgres.logs?")


def test_an_unread_sub_query_is_compiled_too() -> None:
    text = '/* name = "a"\nsandbox = true */\nwith a as (select 1 as x),\n  b as (select format("%a", x) as y from a)\nselect * from a'
    with pytest.raises(BadEndpointFile, match="The sub-query b: ") as caught:
        check_text(text)
    assert str(caught.value.span).startswith("my.sql:4:")
