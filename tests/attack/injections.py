"""Fragments of SQL for injection, and queries that contain a name or a string at every place of the grammar."""

import os
from typing import Final

# Fragments of SQL that the tests use as names, as strings, as keys of events and as values of parameters.
FRAGMENTS: Final = (
    *("{0}", "{1}", "{9}", "{", "}", "{}", "{{0}}", "@a", "@b", "@p", "@project", "$project", "$1", "?", ":x", "%s", "%(project)s"),
    *("{project:String}", "{x:Nullable(String)}", "\ue000", "\ufffd", "\u2028", "\x01", "\x1e", "\x1f", "\x7f", "a b", " ", "\t"),
    *("a'b", "'", "''", 'a"b', '"', '""', "a`b", "`", "a\\b", "\\", "\\'", '\\"', "\\\\'", "'\\", "\\n", "\\0", "\n", "\r", "\r\n"),
    *("--", "-- x\n", "/*", "*/", "/* x */", "#", ";", "; select 1", ")", "(", "))", "]", "[0]", ",", ".", "a.b", "*", "::INT", "a=b"),
    *("select", "from", "null", "true", "order", "lateral", "qualify", "_e", "_v", "_u", "_n", "_q", "_p", "_x", "_c", "_name_0"),
    *("c0", "rowid", "found", "answer", "first of each", "newest events", "place of the event", "event_message", "project"),
    *("É", "é", "K", "İ", "𝒳", "x" * 300, "' || (select 1) || '", '" || (select 1) || "', "' OR '1'='1", '"); select 1; --'),
    *('a", (select event_message from memory.memtable."postgres.logs" limit 1) as "b', "$$", "$x$", "E'x'", "0", "-1", "1e9"),
    *('a", y AS "{0}" FROM (SELECT 1 AS _e), (SELECT event_message FROM memory.memtable."postgres.logs") AS t(y) --',),
    *("', (select event_message from `postgres.logs` limit 1)) --", "\0", "a\0b", ""),
)  # fmt: skip

# Queries with a name `N` in backquotes. Each query has an answer if the name is a plain word.
NAME_PLACES: Final = (
    "select 1 as N",
    "select N from (select 1 as N)",
    "select N.x from (select 1 as x) as N",
    "select N.N from (select 1 as N) as N",
    "select x from (select 1 as x) N order by N.x limit 1",
    "with N as (select 1 as x) select x from N",
    "with N as (select 1 as N) select N from N as N where N.N = 1",
    "with recursive N as (select 1 as n union all select n + 1 from N where n < 3) select max(n) as x from N",
    "select N from unnest(['a']) as N",
    "select x, N from unnest(['a', 'b']) as x with offset as N order by N",
    "select N.x from unnest([struct('a' as x)]) as N",
    "select s.N from (select struct('a' as N) as s)",
    "select struct('a' as N) as s",
    "select struct(struct('a' as N) as N, 2 as y) as s",
    "select struct('a' as N) = struct('a' as N) as s",
    "select [struct('a' as N, 1 as y), struct('b', 2)] as s",
    "select N from unnest([struct('a' as N)])",
    "select x.* from unnest([struct('a' as N, 'b' as y)]) as x",
    "select as struct 'a' as N, 2 as y",
    "select array(select as struct 'a' as N, 2 as y) as s",
    "select array_agg(struct('a' as N)) as s",
    "select if(true, struct('a' as N), struct('b' as y)).N as s",
    "select cast(struct('a' as x) as struct<N string>) as s",
    "select 'a' as N union all select 'b' order by N",
    "select N from (select struct('a' as N) as s, 'b' as N union all select struct('c' as y), 'd') order by N",
    "select sum(x) over N as s from unnest([1, 2]) as x window N as (order by x) order by s",
    "select row_number() over (partition by N order by N) as r from (select 1 as N)",
    "select N, count(*) as c from (select 'a' as N) group by N having count(*) > 0 order by N",
    "select N from (select 'a' as N) qualify row_number() over (order by N) = 1",
    "select a.N from (select 1 as N) as a join (select 1 as N) as b using (N)",
    "select a.N from (select 1 as N) as a left join (select 1 as N) as b on a.N = b.N",
    "select N.id is not null as ok from edge_logs as N limit 1",
    "select id is not null as N from edge_logs order by timestamp desc limit 2",
    "select m.request.path as N from edge_logs cross join unnest(metadata) as m order by 1",
    "select N.request.path from edge_logs cross join unnest(metadata) as N order by 1",
    "select N.path from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as N order by 1",
    "select x.N.request.path as p from (select metadata as N from edge_logs) as x order by 1",
    "select m.N from edge_logs cross join unnest(metadata) as m",
    "select m.request.N from edge_logs cross join unnest(metadata) as m",
    "select json_value(j.N) as v from (select json '{}' as j)",
    "select format('%T', struct('a' as N)) as f",
    "select (select N from (select 1 as N)) as s",
    "select exists(select 1 from (select 1 as N) where N = 1) as s",
    "select 1 in (select N from (select 1 as N)) as s",
    "select * except (N) from (select 1 as N, 2 as y)",
    "select * replace (3 as N) from (select 1 as N, 2 as y)",
    "select approx_top_count(N, 1) as s from (select 'a' as N)",
    "select N from (select 'k' as k, 1 as v) pivot(sum(v) for k in ('k' as N))",
    "select x_k from (select 'k' as N, 1 as v) pivot(sum(v) as x for N in ('k' as k))",
    "select N, y from (select 1 as a) unpivot(N for y in (a))",
    "select x, N from (select 1 as a) unpivot(x for N in (a))",
    "from (select 1 as N) |> where N = 1 |> extend N + 1 as y |> select N, y",
)

# Queries with a string literal `T`. The answer to each is one cell with this string.
TEXT_PLACES: Final = (
    "select T as v",
    "select x as v from (select T as x)",
    "select x as v from unnest([T]) as x",
    "select concat('', T) as v",
    "select '' || T as v",
    "select [T][offset(0)] as v",
    "select struct(T as a, 1 as b).a as v",
    "select x.a as v from unnest([struct(T as a)]) as x",
    "select coalesce(null, T) as v",
    "select if(true, T, 'no') as v",
    "select case when T = T then T else 'no' end as v",
    "select nullif(T, 'no such') as v",
    "select max(x) as v from unnest([T]) as x",
    "select string_agg(x, T) as v from unnest(['', '']) as x",
    "select array_to_string(['', ''], T) as v",
    "select array_to_string(split(T, 'no such'), '') as v",
    "select replace('no', 'no', T) as v",
    "select replace(concat('zqp', T), 'zqp', '') as v",
    "select substr(concat('p', T), 2) as v",
    "select format('%s', T) as v",
    "select json_value(to_json_string(struct(T as a)), '$.a') as v",
    "select json_value(to_json(T)) as v",
    "select cast(cast(T as bytes) as string) as v",
    "select safe_convert_bytes_to_string(from_base64(to_base64(cast(T as bytes)))) as v",
    "select code_points_to_string(to_code_points(T)) as v",
    "select reverse(reverse(T)) as v",
    "select first_value(x) over (order by x) as v from unnest([T]) as x",
    "select T as v from edge_logs where event_message != T and T not in ('no', 'no such') limit 1",
    "select T as v from (select 1) where T like T or true",
    "select T as v union distinct select T as v",
    "with t as (select T as x) select x as v from t",
    "select any_value(x having max y) as v from unnest([struct(T as x, 1 as y)])",
    "select ifnull(regexp_extract(concat('p', T), r'^p((?s:.*))$'), '') as v",
)

# Pairs of queries that read a string as a pattern, a format, a path, a time zone or a time. `T` is the literal, and `C`
# a column with the same value. Both queries give the same result, or one of them is refused.
INTERPRETING_QUERY_PAIRS: Final = (
    ("select 'ours' like T as v", "select 'ours' like C as v"),
    ("select regexp_contains('ours', T) as v", "select regexp_contains('ours', C) as v"),
    ("select starts_with(concat(T, 'x'), T) as v", "select starts_with(concat(C, 'x'), C) as v"),
    ("select strpos(concat('x', T), T) as v", "select strpos(concat('x', C), C) as v"),
    ("select contains_substr('ours', T) as v", "select contains_substr('ours', C) as v"),
    ("select safe_cast(T as int64) as v", "select safe_cast(C as int64) as v"),
    ("select safe_cast(T as float64) as v", "select safe_cast(C as float64) as v"),
    ("select safe_cast(T as timestamp) as v", "select safe_cast(C as timestamp) as v"),
    ("select safe_cast(T as date) as v", "select safe_cast(C as date) as v"),
    ("select upper(T) as v", "select upper(C) as v"),
    ("select to_hex(sha256(T)) as v", "select to_hex(sha256(C)) as v"),
    ("select char_length(T) as v", "select char_length(C) as v"),
    ("select trim(T) as v", "select trim(C) as v"),
    ("select net.host(T) as v", "select net.host(C) as v"),
    ("select json_query(T, '$') as v", "select json_query(C, '$') as v"),
    ("select translate('ours', T, T) as v", "select translate('ours', C, C) as v"),
    ("select initcap('our story', T) as v", "select initcap('our story', C) as v"),
    ("select T < 'm' as v", "select C < 'm' as v"),
    ("select T = 'ours' as v", "select C = 'ours' as v"),
)
# Queries with a string `T` where the grammar requires a literal.
LITERAL_PLACES: Final = (
    "select json_value(json '{\"a\": 1}', concat('$.', T)) as v",
    "select json_value('{\"a\": 1}', T) as v",
    "select json_query_array(metadata[safe_offset(0)], T) as v from edge_logs",
    "select json_set(json '{}', T, 1) as v",
    "select json_remove(json '{\"a\": 1}', T) as v",
    "select parse_json(T) as v",
    "select json T as v",
    "select json_object(T, 1) as v",
    "select format(T, 1, 2) as v",
    "select format(concat('%s', T), 'x') as v",
    "select format_timestamp(T, timestamp '2026-01-31 01:02:03+00') as v",
    "select format_date(T, date '2026-01-31') as v",
    "select cast(date '2026-01-31' as string format T) as v",
    "select cast(b'x' as string format T) as v",
    "select parse_timestamp(T, '2026') as v",
    "select parse_timestamp('%Y', T) as v",
    "select parse_date(T, T) as v",
    "select timestamp(T) as v",
    "select date T as v",
    "select timestamp T as v",
    "select interval T year to month as v",
    "select interval T hour to second as v",
    "select interval T day as v",
    "select cast(T as interval) as v",
    "select timestamp('2026-01-31 00:00:00', T) as v",
    "select datetime(timestamp '2026-01-31 00:00:00+00', T) as v",
    "select current_date(T) as v",
    "select regexp_extract('ours', T) as v",
    "select regexp_extract_all('ours', T) as v",
    "select regexp_replace('ours', T, 'x') as v",
    "select regexp_replace('ours', 'our', T) as v",
    "select regexp_instr('ours', T) as v",
    "select 'ours' like any (T, 'x') as v",
    "select collate('ours', T) as v",
    "select error(T) as v",
    "select normalize(T) as v",
    "select parse_numeric(T) as v",
    "select numeric T as v",
    "select farm_fingerprint(T) as v",
    "select bytes_column from (select cast(T as bytes) as bytes_column)",
    "select y from (select T as k, 1 as v) pivot(sum(v) for k in (T as y))",
    "select y, z from (select 1 as a) unpivot(y for z in (a as T))",
    "select m.request.path from edge_logs cross join unnest(metadata) as m where m.request.path = T",
    "select event_message from edge_logs where regexp_contains(event_message, T)",
    "select event_message from edge_logs where event_message like T order by timestamp desc limit 5",
)

# Injections that earlier versions permitted: each read other projects or system tables, or failed. Each has its correct
# answer, or None if it must be refused.
_INJECTED_SUB_QUERY: Final = (
    'a", y AS "{0}" FROM (SELECT 1 AS _e), (SELECT event_message FROM "postgres.logs") AS t(y)'
    ' UNION ALL SELECT NULL, NULL AS "w'
)
_INJECTED_JOIN: Final = (
    'x", 1 AS y, event_message AS "v" FROM (SELECT 1 AS _e), "postgres.logs" UNION ALL SELECT NULL, 2 AS "w'
)
_INJECTED_FIELD: Final = 'x" := (SELECT string_agg(table_name) FROM duckdb_tables()), "y'
_INJECTED_UNION: Final = (
    'x" UNION ALL SELECT tuple(project, event_message), \'\' FROM "postgres.logs")) AS "r" /*'.replace("''", "project")
)
EARLIER_INJECTIONS: Final[tuple[tuple[str, list[dict[str, object]] | None], ...]] = (
    (f"select `{{0}}` as x from unnest(['{_INJECTED_SUB_QUERY}']) as `{{0}}`", [{"x": _INJECTED_SUB_QUERY}]),
    (f"select v from unnest(['a']) as `{_INJECTED_JOIN}` with offset as v", [{"v": 0}]),
    (f"select struct('{_INJECTED_FIELD}' as `{{0}}`) as s", [{"s": {"{0}": _INJECTED_FIELD}}]),
    (f"select as struct '{_INJECTED_FIELD}' as `{{0}}`", [{"{0}": _INJECTED_FIELD}]),
    (f"select array(select as struct '{_INJECTED_FIELD}' as `{{0}}`) as s", [{"s": [{"{0}": _INJECTED_FIELD}]}]),
    (f"select struct('a' as `{_INJECTED_FIELD}`) as s", [{"s": {_INJECTED_FIELD: "a"}}]),
    (
        f"select r.v from unnest([struct('{_INJECTED_UNION}' as `{{0}}`, 'q' as v)]) as r where '*/ -- ' != ''",
        [{"v": "q"}],
    ),
    ("select struct(1 as a, 2 as A, 3 as _field_2).a as v", [{"v": 1}]),
    ("select struct((select 1) as `{0}`, 2 as y) as s", [{"s": {"{0}": 1, "y": 2}}]),
    ("select interval '1-2\\'' year to month as v", None),
    ("select x, y from (select '{0}' as x) pivot(max(x) for x in ('{0}' as y))", None),
    ("select '{0}' as `{0}`, \"it's\" as `@a`", [{"{0}": "{0}", "@a": "it's"}]),
    ("select format_timestamp('{0} @a @b {1}', timestamp '2026-01-31 00:00:00+00') as v", [{"v": "{0} @a @b {1}"}]),
    ("select '%(project)s' as v, '100%' as w from edge_logs", [{"v": "%(project)s", "w": "100%"}]),
    ("select '{project:String}' as v", [{"v": "{project:String}"}]),
    ("select 'ours' like '\\\\' as v", None),
    ("select extract(`x'y` from interval 1 day) as v", None),
    ("select format('%٣d', 3) as v", None),
)

# In CI, each query is tested with a different part of the fragments; `make torture` tests it with all of them.
_STRIDE: Final = 1 if os.environ.get("TORTURE") == "full" else 29


def fragments_for_place(at: int) -> list[str]:
    """Return the fragments with which the query number `at` is tested."""
    return list(FRAGMENTS[at % _STRIDE :: _STRIDE])


def quote_name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    return "'" + "".join(_escaped(letter) for letter in text) + "'"


def _escaped(letter: str) -> str:
    return f"\\x{ord(letter):02x}" if letter in "\\'\n\r\0" else letter
