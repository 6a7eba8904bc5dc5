"""Queries in ClickHouse's dialect read only the pinned project, are redacted, and allow no SQL injection."""

import json
import re
from collections.abc import Iterator

import pytest

from cordwood.app.in_process import InProcessApp
from tests.attack.injections import fragments_for_place
from tests.attack.test_pinned_queries import FOREIGN_TEXT, open_with_two_projects, pinned_key, send

ENDPOINT = "/api/endpoints/query/logs.all.otel"
PRIVATE_MAIL, PRIVATE_CARD, PRIVATE_SECRET = "jane.roe@example.org", "4111 1111 1111 1111", "hunter2swordfish"
Row = dict[str, object]

# Queries with a string literal `T`. The answer to each is one cell with this string.
TEXT_PLACES = (
    "SELECT T AS v",
    "SELECT DISTINCT T AS v FROM logs",
    "SELECT T AS v FROM logs GROUP BY v",
    "SELECT v FROM (SELECT T AS v) WHERE v = T",
    "SELECT any(T) AS v FROM logs",
    "SELECT if(1 = 1, T, '') AS v",
    "SELECT multiIf(source = 'edge_logs', T, T) AS v FROM logs LIMIT 1",
    "SELECT concat(T, '') AS v",
    "SELECT map('k', T)['k'] AS v",
    "SELECT arrayJoin([T]) AS v",
    "SELECT [T][1] AS v",
    "SELECT coalesce(nullIf(T, 'no'), '') AS v",
    "SELECT CASE WHEN source = T THEN '' ELSE T END AS v FROM logs LIMIT 1",
    "SELECT toString(T) AS v FROM logs WHERE event_message != T LIMIT 1",
    "SELECT argMax(T, timestamp) AS v FROM logs",
    "(SELECT T AS v) UNION ALL (SELECT T FROM logs WHERE source = T)",
    "SELECT T AS v FROM logs WHERE log_attributes[T] = '' AND NOT event_message LIKE '%no such%' LIMIT 1",
    "WITH a AS (SELECT T AS v) SELECT v FROM a",
    "WITH T AS v SELECT v",
    "SELECT if((T, 'a') = (T, 'a'), T, '') AS v",
)

# Queries that read the string `T` as a pattern, a key or a type.
LITERAL_PLACES = (
    "SELECT id FROM logs WHERE event_message LIKE T",
    "SELECT id FROM logs WHERE event_message ILIKE T",
    "SELECT id FROM logs WHERE match(event_message, T)",
    "SELECT extract(event_message, T) AS v FROM logs",
    "SELECT replaceRegexpAll(event_message, T, 'x') AS v FROM logs",
    "SELECT replaceAll(event_message, T, T) AS v FROM logs",
    "SELECT splitByString(T, event_message) AS v FROM logs",
    "SELECT position(event_message, T) AS v FROM logs",
    "SELECT JSONExtractString(event_message, T) AS v FROM logs",
    "SELECT JSONExtractRaw(event_message, T, 'x') AS v FROM logs",
    "SELECT log_attributes[T] AS v FROM logs",
    "SELECT log_attributes[concat(source, T)] AS v FROM logs",
    "SELECT log_attributes[arrayJoin([T, 'level'])] AS v FROM logs",
    "SELECT positionCaseInsensitive(event_message, T) AS v FROM logs",
    "SELECT trim(BOTH T FROM event_message) AS v FROM logs",
    "SELECT JSONExtract(event_message, T, T) AS v FROM logs",
    "SELECT mapContains(log_attributes, T) AS v FROM logs",
    "SELECT map(T, 'x') AS v",
    "SELECT formatDateTime(timestamp, T) AS v FROM logs",
    "SELECT toDateTime64(T, 3) AS v",
    "SELECT timestamp > T AS v FROM logs",
    "SELECT toInt64OrZero(T) AS v, toFloat64OrNull(T) AS w",
    "SELECT CAST('1', T) AS v",
    "SELECT source FROM logs WHERE source IN (T, 'edge_logs')",
    "SELECT id FROM logs WHERE toString(id) > T",
    "SELECT has(splitByChar('/', event_message), T) AS v FROM logs",
    "SELECT dateDiff(T, timestamp, timestamp) AS v FROM logs",
)

# Queries with a quoted name `N` in each place of the grammar.
NAME_PLACES = (
    "SELECT 1 AS N",
    "SELECT N FROM (SELECT 1 AS N)",
    "SELECT id AS N FROM logs ORDER BY N LIMIT 1",
    "SELECT source AS N, count() FROM logs GROUP BY N HAVING N != '' ORDER BY N",
    "WITH N AS (SELECT 1 AS a) SELECT a FROM N",
    "SELECT N.a FROM (SELECT 1 AS a) AS N",
    "SELECT event_message AS N FROM logs AS t WHERE N != ''",
    "(SELECT 'a' AS N) UNION ALL (SELECT 'b')",
    "SELECT N FROM logs",
    "SELECT id FROM N",
    "SELECT id FROM logs WHERE logs.N = 1",
)

REFUSED_QUERIES = (
    "SELECT * FROM logs",
    "SELECT logs.* FROM logs",
    "SELECT id FROM edge_logs",
    "SELECT id FROM `cloudflare.logs.prod`",
    'SELECT id FROM "postgres.logs"',
    "SELECT name FROM system.tables",
    "SELECT id FROM default.logs",
    "SELECT id FROM logs, logs AS b",
    "SELECT a.id FROM logs AS a JOIN logs AS b ON a.id = b.id",
    "SELECT id FROM logs ARRAY JOIN splitByChar('/', event_message) AS x",
    "SELECT id FROM logs FINAL",
    "SELECT id FROM logs SAMPLE 0.1",
    "SELECT id FROM logs PREWHERE id != ''",
    "SELECT id FROM logs SETTINGS max_threads = 1",
    "SELECT id FROM logs FORMAT JSON",
    "SELECT id FROM logs INTO OUTFILE '/tmp/x'",
    "SELECT id FROM logs LIMIT 1 BY id",
    "SELECT count() FROM logs GROUP BY source WITH TOTALS",
    "SELECT count() FROM logs GROUP BY source WITH ROLLUP",
    "SELECT id FROM logs WHERE id IN (SELECT id FROM logs)",
    "SELECT (SELECT max(id) FROM logs) AS x",
    "SELECT id FROM logs WHERE exists(SELECT 1 FROM logs)",
    "SELECT count() OVER () FROM logs",
    "SELECT arrayMap(x -> x, [1]) FROM logs",
    "SELECT file('/etc/passwd')",
    "SELECT count() FROM file('/etc/passwd')",
    "SELECT count() FROM url('http://127.0.0.1/', CSV, 'a String')",
    "SELECT count() FROM numbers(10)",
    "SELECT count() FROM (VALUES (1))",
    "SELECT dictGet('a', 'b', 1)",
    "SELECT getSetting('max_threads')",
    "SELECT currentUser()",
    "WITH (SELECT id FROM logs) AS x SELECT x",
    "WITH x AS y, y AS x SELECT x FROM logs",
    "SELECT id FROM logs WHERE (id, source) = (id, source, project)",
    "SELECT log_attributes[1] FROM logs",
    "SELECT sleep(3)",
    "SELECT hostName()",
    "SELECT joinGet('a', 'b', 1)",
    "SELECT $attribute(event_message) FROM logs",
    "SELECT `$attribute`(event_message) FROM logs",
    "SELECT extras FROM logs",
    "SELECT metadata FROM logs",
    "SELECT logs.extras FROM logs",
    "SELECT id FROM logs UNION DISTINCT SELECT id FROM logs",
    "SELECT id FROM logs INTERSECT SELECT id FROM logs",
    "SELECT 1; SELECT 2",
    "INSERT INTO logs VALUES (1)",
    "DROP TABLE logs",
    "EXPLAIN SELECT id FROM logs",
    "DESCRIBE logs",
    "SELECT id AS a, a AS id2, id2 AS b, b AS c, c AS b FROM logs",
    "SELECT b AS a, a AS b FROM logs",
)

# Expressions that read a string of an event.
READ_EXPRESSIONS = (
    "SELECT id, event_message AS v FROM logs",
    "SELECT log_attributes AS v FROM logs",
    "SELECT log_attributes['request.mail'] AS v FROM logs",
    "SELECT log_attributes['password'] AS v FROM logs",
    "SELECT log_attributes['deep.password'] AS v FROM logs",
    "SELECT log_attributes['list'] AS v FROM logs",
    "SELECT log_attributes['top_mail'] AS v FROM logs",
    f"SELECT log_attributes['{PRIVATE_MAIL}'] AS v FROM logs",
    "SELECT mapKeys(log_attributes) AS v FROM logs",
    "SELECT mapValues(log_attributes) AS v FROM logs",
    "SELECT arrayJoin(mapKeys(log_attributes)) AS v FROM logs",
    "SELECT arrayJoin(mapValues(log_attributes)) AS v, count() AS c FROM logs GROUP BY v",
    "SELECT arrayJoin(splitByChar(' ', event_message)) AS v FROM logs",
    "SELECT severity_text AS v FROM logs",
    "SELECT JSONExtractString(event_message, 'mail') AS v FROM logs",
    "SELECT JSONExtractRaw(event_message) AS v FROM logs",
    "SELECT JSONExtractKeys(event_message) AS v FROM logs",
    "SELECT extract(event_message, '(.*)') AS v FROM logs",
    "SELECT upper(event_message) AS v FROM logs",
    "SELECT lower(event_message) AS v FROM logs",
    "SELECT substring(event_message, 1, 40) AS v FROM logs",
    "SELECT max(event_message) AS v FROM logs",
    "SELECT groupArray(event_message) AS v FROM logs",
    "SELECT argMax(event_message, timestamp) AS v FROM logs",
    "SELECT any(log_attributes['request.mail']) AS v FROM logs",
    "SELECT log_attributes[concat('request', '.mail')] AS v FROM logs",
    "SELECT arrayJoin(['request.mail', 'password']) AS k, log_attributes[k] AS v FROM logs",
    "SELECT arrayJoin(mapKeys(log_attributes)) AS k, log_attributes[k] AS v FROM logs",
    "SELECT reverse(reverse(event_message)) AS v, left(event_message, -1) AS w FROM logs",
    "SELECT arraySort(splitByChar(' ', event_message)) AS v FROM logs",
    "SELECT anyLast(event_message) AS v, JSONExtract(any(event_message), 'mail', 'String') AS w FROM logs",
    "WITH upper(event_message) AS u SELECT u AS v FROM logs",
    "SELECT event_message AS v, count() AS c FROM logs GROUP BY v",
    "SELECT DISTINCT event_message AS v FROM logs",
    "SELECT map('k', event_message) AS v FROM logs",
    "SELECT v FROM (SELECT event_message AS v FROM logs ORDER BY v)",
    "SELECT v['deep.mail'] AS v FROM (SELECT log_attributes AS v FROM logs)",
    "(SELECT event_message AS v FROM logs) UNION ALL (SELECT log_attributes['request.mail'] FROM logs)",
)
# Conditions that are true for the raw value. With redaction, no row may match.
GUESSING_QUERIES = (
    f"SELECT count() AS n FROM logs WHERE event_message LIKE '%{PRIVATE_MAIL}%'",
    f"SELECT count() AS n FROM logs WHERE log_attributes['request.mail'] = '{PRIVATE_MAIL}'",
    "SELECT countIf(log_attributes['request.mail'] LIKE 'jane%') AS n FROM logs",
    f"SELECT count() AS n FROM logs WHERE position(event_message, '{PRIVATE_MAIL}') > 0",
    f"SELECT count() AS n FROM logs WHERE has(mapValues(log_attributes), '{PRIVATE_MAIL}')",
    f"SELECT count() AS n FROM logs WHERE has(mapKeys(log_attributes), '{PRIVATE_MAIL}')",
    f"SELECT count() AS n FROM logs WHERE mapContains(log_attributes, '{PRIVATE_MAIL}')",
    f"SELECT count() AS n FROM logs WHERE match(event_message, '{PRIVATE_MAIL.replace('.', '[.]')}')",
    f"SELECT count() AS n FROM logs WHERE log_attributes['password'] = '{PRIVATE_SECRET}'",
    f"SELECT count() AS n FROM logs WHERE (source, log_attributes['password']) = ('edge_logs', '{PRIVATE_SECRET}')",
    f"SELECT count() AS n FROM logs WHERE log_attributes[lower('PASSWORD')] = '{PRIVATE_SECRET}'",
    f"SELECT count() AS n FROM logs WHERE positionCaseInsensitive(event_message, '{PRIVATE_MAIL.upper()}') > 0",
)


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessApp]:
    with open_with_two_projects(request.param, tmp_path_factory.mktemp("dialect"), personal_event()) as app:
        yield app


def personal_event() -> dict[str, object]:
    """Return an event with personal data in every field, of a project that is not one of the two usual ones."""
    metadata: dict[str, object] = {
        "project": "jane",
        "project_ref": "jane",
        "request": {"mail": PRIVATE_MAIL, "ip": "203.0.113.77"},
        "password": PRIVATE_SECRET,
        "deep": {"password": PRIVATE_SECRET, "mail": f"to {PRIVATE_MAIL}"},
        "list": [PRIVATE_MAIL, {"card": PRIVATE_CARD}],
        PRIVATE_MAIL: {"x": "y"},
        "level": PRIVATE_MAIL,
    }
    message = json.dumps({"mail": PRIVATE_MAIL, "card": PRIVATE_CARD, PRIVATE_MAIL: 1})
    return {"event_message": message, "project": "jane", "top_mail": PRIVATE_MAIL, "metadata": metadata}


@pytest.fixture(scope="module")
def key(app: InProcessApp) -> str:
    return pinned_key(app)


def rows(app: InProcessApp, key: str, sql: str) -> list[Row] | None:
    """Return the rows of an answer, or None if the query is refused.

    Fail on an internal error, and on data of the other project.
    """
    status, answer = send(app, ENDPOINT, {"sql": sql}, x_api_key=key)
    assert status in (200, 400, 422), (sql, answer)
    assert FOREIGN_TEXT not in answer, sql
    assert '"bug' not in answer, (sql, answer)
    return list(json.loads(answer)["result"]) if status == 200 else None


def quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return f"'{escaped}'"


def quote_name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def test_without_a_pin_the_other_project_is_readable(app: InProcessApp) -> None:
    body = {"project": "other", "sql": "SELECT source, event_message, log_attributes FROM logs"}
    assert FOREIGN_TEXT in send(app, ENDPOINT, body, x_api_key=app.private_key_secret)[1]


def test_a_string_is_returned_unchanged_in_every_place(app: InProcessApp, key: str) -> None:
    for at, place in enumerate(TEXT_PLACES):
        for text in fragments_for_place(at):
            result_rows = rows(app, key, _replace_placeholder(place, "T", quote_text(text)))
            assert result_rows in (None, [{"v": text}]), (place, text)


def test_an_interpreted_string_reads_nothing_of_another_project(app: InProcessApp, key: str) -> None:
    for at, place in enumerate(LITERAL_PLACES):
        for text in fragments_for_place(at):
            rows(app, key, _replace_placeholder(place, "T", quote_text(text)))


def test_a_quoted_name_reads_nothing_of_another_project(app: InProcessApp, key: str) -> None:
    for at, place in enumerate(NAME_PLACES):
        for name in fragments_for_place(at):
            rows(app, key, _replace_placeholder(place, "N", quote_name(name)))


@pytest.mark.parametrize("sql", REFUSED_QUERIES)
def test_a_query_of_anything_but_the_logs_table_is_refused(app: InProcessApp, key: str, sql: str) -> None:
    assert rows(app, key, sql) is None


@pytest.mark.parametrize("sql", READ_EXPRESSIONS)
def test_no_query_returns_a_private_value_unredacted(app: InProcessApp, sql: str) -> None:
    body = {"project": "jane", "sql": sql}
    status, plain = send(app, ENDPOINT, body, x_api_key=app.private_key_secret)
    assert status == 200, plain
    status, answer = send(app, ENDPOINT, body, x_api_key=app.private_key_secret, LF_ENDPOINT_REDACT_PII="true")
    assert status in (200, 400), answer
    for personal_text in (PRIVATE_MAIL, PRIVATE_MAIL.upper(), PRIVATE_CARD, PRIVATE_SECRET, "203.0.113.77"):
        assert personal_text not in answer, sql


@pytest.mark.parametrize("sql", GUESSING_QUERIES)
def test_no_condition_matches_a_private_value_under_redaction(app: InProcessApp, sql: str) -> None:
    status, answer = send(
        app, ENDPOINT, {"project": "jane", "sql": sql}, x_api_key=app.private_key_secret, LF_ENDPOINT_REDACT_PII="true"
    )
    assert (status, json.loads(answer)) == (200, {"result": [{"n": 0}]})


def _replace_placeholder(place: str, placeholder: str, text: str) -> str:
    """Replace a placeholder, which is a capital letter, wherever it is a separate word."""
    return re.sub(rf"\b{placeholder}\b", lambda _: text, place)
