"""A query with ambiguous comments or strings never gets the cached answer to another query, and vice versa."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from tests.attack.test_pinned_queries import make_settings, send

HONEST_QUERY = "select sum(n) as n from numbers"
# Queries that compute a larger sum. With other rules for comments and strings, they would equal the honest query.
SIMILAR_QUERIES = (
    "select sum(n) --\r+ 4711\n as n from numbers",
    "select sum(n) #\r+ 4711\n as n from numbers",
    "select sum(n) -- x\r+ 4711 --\n as n from numbers",
    "select sum(n) /* /* */ + 4711 /* */ as n from numbers",
    "select sum(n) --\v\r+ 4711\n as n from numbers",
    "select sum(n) --\u2028+ 4711\n as n from numbers",
    "select sum(n) --\u0085+ 4711\n as n from numbers",
    "select sum(n) + if('\\\\' = ' --', 0, 4711) -- '\n as n from numbers",
    "select sum(n) + if(r'\\' --' = '', 0, 4711) -- '\n as n from numbers",
    "select sum(n) + if('''a'' -- ''' = '', 0, 4711) as n from numbers",
)
ENDPOINT = """/*
name = "kept"
cache = "15m"
sandbox = true
*/
with numbers as (select 1 as n union all select 2) select * from numbers
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[InProcessApp]:
    (tmp_path / "kept.sql").write_text(ENDPOINT)
    with open_in_process_app(make_settings(tmp_path / "data", endpoints=tmp_path)) as app:
        yield app


@pytest.mark.parametrize("poison", SIMILAR_QUERIES)
def test_the_honest_query_is_not_answered_from_a_similar_one(app: InProcessApp, poison: str) -> None:
    send(app, "/api/endpoints/query/kept", {"sql": poison})
    status, body = send(app, "/api/endpoints/query/kept", {"sql": HONEST_QUERY})
    assert (status, json.loads(body)) == (200, {"result": [{"n": 3}]})


@pytest.mark.parametrize("poison", SIMILAR_QUERIES)
def test_a_similar_query_is_not_answered_from_the_honest_one(app: InProcessApp, poison: str) -> None:
    send(app, "/api/endpoints/query/kept", {"sql": HONEST_QUERY})
    cached = send(app, "/api/endpoints/query/kept", {"sql": poison})
    fresh = send(app, "/api/endpoints/query/kept", {"sql": poison}, cache_control="no-cache")
    assert cached[0] == fresh[0]
    assert cached[0] != 200 or cached[1] == fresh[1]
