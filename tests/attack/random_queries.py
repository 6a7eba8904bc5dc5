"""A generator of random queries: every permitted function, with unusual arguments and in every clause.

Some queries are in pipe syntax or in LQL. The same seed gives the same query. Functions come from
`tests/unit/sql/function_calls.py`. Another test checks that this module has every permitted function, so that new
functions are included.
"""

import json
import random
import re
from typing import Final

from tests.unit.sql.function_calls import CALLS

# Unusual arguments, by the type of the literal that they replace. Any argument may also become NULL or a nested call.
NUMBERS: Final = (
    *("0", "-1", "2", "3.5", "-0.0", "1e308", "-1e-300", "9223372036854775807", "-9223372036854775808", "1000000"),
    *("cast('nan' as float64)", "cast('inf' as float64)", "cast('-inf' as float64)", "length(t.id)", "cast(x as float64)"),
    *("numeric '99999999999999999999999999999.999999999'", "bignumeric '1e37'", "t.metadata.n", "t.metadata.f", "x"),
    *("safe_cast(t.event_message as int64)", "unix_micros(t.timestamp)", "true", "cast(null as float64)", "0x7f", "@n"),
)  # fmt: skip
TEXTS: Final = (
    *("''", "'a'", r"'\\'", "'%'", "'%%d'", r"'\u0000'", "'\u0130\u00df\ufb01e\u0301'", "'\U0001f600'", "'2024-02-30'", "'-1:00'"),
    *("'('", "'[:alpha:]'", r"r'\d+(?P<n>x)?$'", "r'(a)(b)'", "r'a**'", r"r'\pZ'", "'$.a[0]'", "'$..a'", "'$'", "'lax $.a'"),
    *("'{\"a\": [1, {\"b\": null}]}'", "'[[['", r"'\"\\ud800\"'", "'9999-12-31 23:59:59.999999'", "'0000-00-00'", "'1e400'"),
    *("'UTC'", "'Europe/Nowhere'", "'+14:59'", "'America/New_York'", "'%E*S %Ez %J %Q'", "'%-+ 010.3e %T %t %p'", "'YYYY-MM'"),
    *("'http://[::1'", "'::ffff:1.2.3.4'", "'x y'", "repeat('x', 1000)", "t.event_message", "t.id", "t.metadata.s", "t.metadata.l"),
    *("to_json_string(t.metadata)", "cast(null as string)", "b'\\xff'", "@p", "'nan'", "'0x1f'", "'true'", "'MONDAY'"),
)  # fmt: skip
BYTES: Final = (r"b'\xff\xfe'", "b''", r"b'\x00'", "from_hex('00')", "cast(t.event_message as bytes)", "'a'", "null")
DATES: Final = (
    "date '0001-01-01'", "date '9999-12-31'", "date '1969-12-31'", "date '2024-02-29'", "date(t.timestamp)",
    "cast(null as date)", "datetime '2024-01-01'",
)  # fmt: skip
DATETIMES: Final = (
    "datetime '0001-01-01 00:00:00'", "datetime '9999-12-31 23:59:59.999999'", "datetime(t.timestamp)",
    "cast(null as datetime)", "date '2024-02-29'",
)  # fmt: skip
TIMESTAMPS: Final = (
    "timestamp '0001-01-01 00:00:00+00'", "timestamp '9999-12-31 23:59:59.999999+00'", "t.timestamp",
    "timestamp_micros(-1)", "cast(null as timestamp)", "timestamp '2024-03-31 02:30:00 Europe/Berlin'",
)  # fmt: skip
TIMES: Final = ("time '00:00:00'", "time '23:59:59.999999'", "time(t.timestamp)", "cast(null as time)")
ARRAYS: Final = (
    "[]", "[1, null]", "['a', '']", "[1.5, cast('nan' as float64)]", "[[1]]", "[struct(1 as a)]", "t.metadata.a",
    "cast(null as array<int64>)", "array(select y from unnest([3, null, 1]) y)", "generate_array(1, 3)",
    "split(t.event_message, '')", "[t.timestamp]", "[json '{}']", "[x, x]",
)  # fmt: skip
JSONS: Final = (
    "json 'null'", "json '{\"a\": [1, {}], \"\": 1e308}'", "json '[]'", "json '\"\\\\u0000\"'", "json '18446744073709551616'",
    "to_json(t.metadata)", "parse_json(t.metadata.s)", "cast(null as json)", "to_json(cast('nan' as float64))",
)  # fmt: skip
OTHER_ARGUMENTS: Final = (
    "t", "t.metadata", "t.metadata.o", "t.metadata.nothing", "struct(1 as a, [] as b)", "(1, null)", "interval 1 day",
    "(select max(id) from edge_logs)", "(select id from edge_logs)", "exists(select 1 from edge_logs where id = t.id)",
    "count(*)", "sum(x)", "row_number() over (order by x)", "if(x = 1, null, x)", "x is null", "not true", "-x", "~x",
    "(select as struct 1 as a, 2 as b)", "array(select as struct id from edge_logs)", "t.*", "current_timestamp()",
)  # fmt: skip
INTERVALS: Final = ("10000 year", "-1 microsecond", "9223372036854775807 day", "x hour", "null day", "1.5 second")
UNITS: Final = (
    *("day", "hour", "month", "year", "microsecond", "millisecond", "nanosecond", "week", "week(monday)", "isoweek"),
    *("isoyear", "quarter", "dayofweek", "dayofyear", "date", "time", "century", "minute", "second"),
)
OPERATORS: Final = (
    *("+", "-", "*", "/", "||", "<", "=", "<>", ">=", "and", "or", "&", "|", "^", "<<", ">>", "like", "not like"),
    *("is distinct from", "is not distinct from", "in unnest"),
)
TYPES: Final = (
    *("int64", "float64", "string", "bytes", "bool", "date", "datetime", "timestamp", "time", "numeric", "bignumeric"),
    *("json", "interval", "array<int64>", "array<string>", "struct<a int64>", "string(3)", "numeric(5, 2)"),
)
FORMATS: Final = ("", "", "", " format 'YYYY-MM-DD'", " format 'HEX'", " format 'BASE64'", " format '!'")

_FROM_CLAUSE: Final = "edge_logs t, unnest([1, 2, 3]) as x"
QUERY_TEMPLATES: Final = (
    *("select {e} as v from {s}",) * 6,
    "select {e} as v from {s} where {e} is not null",
    "select {e} as v from {s} where {e} {o} {e} limit 5",
    "select {e} as v, count(*) as n from {s} group by 1",
    "select {e} as v, {f} as n from {s} group by {e}, 1 having {f} is not null",
    "select x, {f} as v from {s} group by x having {f} >= 0",
    "select x, grouping(x) as g, {f} as v from {s} group by rollup(x)",
    "select x, {f} as v from {s} group by grouping sets ((x), ())",
    "select {e} as v from {s} order by {e} desc nulls last limit 3 offset 1",
    "select distinct {e} as v, {e} as w from {s}",
    "select {e} between {e} and {e} as v, {e} in ({e}, {e}) as w from {s}",
    "select case when {e} = {e} then {e} else {e} end as v, case {e} when {e} then 1 end as w from {s}",
    "select if({e}, {e}, {e}) as v, coalesce({e}, {e}) as w, nullif({e}, {e}) as y from {s}",
    "select {e} like {e} as v, {e} like any ({e}, {e}) as w from {s}",
    "select {e} {o} {e} as v from {s}",
    "select {e} {o} ({e}) as v from {s}",
    "select safe_cast({e} as {t}{c}) as v from {s}",
    "select cast({e} as {t}{c}) as v from {s}",
    "select cast(cast({e} as {t}) as {t}) as v from {s}",
    "select {e} as v from {s} union all select {e} as v from {s}",
    "select {e} as v from {s} except distinct select {e} as v from {s}",
    "select array_agg({e} ignore nulls order by {e} limit 2) as v, string_agg({e}, {e}) as w from {s}",
    "select max({e}) over (partition by {e} order by x rows between 1 preceding and current row) as v from {s}",
    "select sum(x) over (order by {e} range between {e} preceding and {e} following) as v from {s}",
    "select lag({e}, {e}, {e}) over (order by x) as v, nth_value({e}, 2) over (order by x) as w from {s}",
    "select v from (select {e} as v from {s}) where to_json_string(v) <> '' qualify row_number() over (order by 1) > 0",
    "select {e}[safe_offset({e})] as v, {e}[ordinal({e})] as w from {s}",
    "select y from {s}, unnest({e}) as y with offset as o",
    "select t.id, o.id as other from edge_logs t left join edge_logs o on {g} = {g} and t.id = o.id",
    "select * from (select x, {e} as v from {s}) pivot (count(v) as n for x in (1, 2))",
    "with w as (select {e} as v, x from {s}) select a.v, b.v as u from w a full join w b using (x)",
    "with recursive r as (select 1 as n union all select n + 1 from r where n < 4) select n, {e} as v from r, {s} limit 9",
    "select struct({e} as a, {e} as b).a as v, [{e}, {e}] as w, to_json(struct({e} as k)) as y from {s}",
    "select (select {e} from unnest([1]) z) as v, exists(select {e} as k from {s}) as w from edge_logs t, unnest([1]) x",
    "from {s} |> where {e} is not null |> extend {e} as v |> aggregate count(*) as n group by v |> order by n |> limit 3",
    "from {s} |> select x, {e} as v |> set v = {e} |> drop x",
    "select extract({u} from {d}) as v, {d} as w from {s}",
    "select timestamp_trunc({d}, {u}, {e}) as v, date_trunc({d}, {u}) as w from {s}",
    "select {d} + interval {i} as v, {d} - {d} as w from {s}",
    "select date_add({d}, interval {i}) as v, timestamp_diff({d}, {d}, {u}) as w from {s}",
    "select {d} {o} {d} as v, cast({d} as {t}{c}) as w from {s}",
    "select generate_date_array({d}, {d}, interval {i}) as v from {s}",
    "select {e} as v from {s} where t.metadata.n > {e} or t.event_message in ({e}) or t.timestamp > {d}",
)  # fmt: skip

LQL_FIELDS: Final = (
    *("m.s", "m.n", "m.f", "m.a", "m.o.b", "m.l", "m.o", "m.nothing", "m", "id", "timestamp", "event_message", "t"),
    *('m."content type"', "m.a.b.c", "m." + "x." * 40 + "y", '""', "m.", ".m", "m..n"),
)
LQL_VALUES: Final = (
    *("1", "-5", "0123", "1e400", "nan", "true", "NULL", '"a b"', '""', '"\\""', "~(", "~.*", "~a{9999}", "~\\", "a..b"),
    *("1..", "..1", "2..1", "2024-01-01..2024-02-30", ">=5", "<", ">last@1h", "@>x", "@>~(", "(two words)", "*", "%", "\\", "'"),
    *("warning..critical", "today", "last@1h", "last@99999999999999d", "this@year", "2024-13-01", "9999-12-31..9999-12-31"),
    *("\u0130\U0001f600", "\u0000", "9223372036854775808"),
)  # fmt: skip
LQL_CLAUSES: Final = (
    *("c:count(*)", "c:avg(m.n)", "c:max(m.s)", "c:p95(m.f)", "c:count(distinct m.a)", "c:group_by(t::minute)", "c:group_by(m.s)"),
    *("c:group_by(t::century)", "c:sum(m.o)", "s:m.n", "s:*", "s:m.s@x", "s:m.a", "order:m.n@desc", "order:x@asc", "limit:3"),
    *("limit:0", "limit:99999999999", "limit:x", "f:postgres_logs", "OR", "-", "(", ")", "-(", '"', "~", ":", "t:", "c:", "s:"),
)  # fmt: skip

_TYPED_LITERAL: Final = re.compile(
    r"(?P<date>date '[^']*')|(?P<datetime>datetime '[^']*')|(?P<timestamp>timestamp '[^']*')|(?P<time>\btime '[^']*')"
    r"|(?P<json>json '[^']*')|(?P<interval>(?<=interval )\d+ \w+)|(?P<bytes>b'(?:[^'\\]|\\.)*')"
    r"|(?P<text>'(?:[^'\\]|\\.)*')|(?P<array>\[[^\[\]]*\](?!\[))|(?P<number>\b\d+(?:\.\d+)?\b|\bx\b)"
    r"|(?P<unit>(?<=, )(?:day|month|hour|week\(\w+\))(?=[,)]))"
)
_ARGUMENTS_BY_TYPE: Final = {
    "date": DATES,
    "datetime": DATETIMES,
    "timestamp": TIMESTAMPS,
    "time": TIMES,
    "json": JSONS,
    "interval": INTERVALS,
    "bytes": BYTES,
    "text": TEXTS,
    "array": ARRAYS,
    "number": NUMBERS,
    "unit": UNITS,
}
_FUNCTION_NAMES: Final = sorted(CALLS)
# Aggregate functions that a random query may use.
_AGGREGATE_NAMES: Final = tuple(
    name
    for name in _FUNCTION_NAMES
    if re.search(r"\(x|\(distinct x|\(cast\(x", CALLS[name]) and " over " not in CALLS[name]
)
_PLACEHOLDER: Final = re.compile(r"\{(\w)\}")
_MAX_DEPTH: Final = 2


def random_query(seed: str) -> tuple[str, str]:
    """Return the language (`sql` or `lql`) and the text of the query that belongs to this seed."""
    rng = random.Random(seed)
    if rng.random() < 0.08:
        return "lql", _random_lql(rng)
    text = _PLACEHOLDER.sub(lambda placeholder: _fill_template(placeholder[1], rng), rng.choice(QUERY_TEMPLATES))
    return "sql", _corrupted(text, rng) if rng.random() < 0.05 else text


def _fill_template(kind: str, rng: random.Random) -> str:
    if kind in _PLACEHOLDER_CHOICES:
        return rng.choice(_PLACEHOLDER_CHOICES[kind])
    if kind == "f":
        return _vary_arguments(CALLS[rng.choice(_AGGREGATE_NAMES)], rng, _MAX_DEPTH)
    return (
        _random_call(rng, _MAX_DEPTH)
        if rng.random() < 0.75
        else rng.choice(rng.choice(tuple(_ARGUMENTS_BY_TYPE.values())[:-1]))
    )


_PLACEHOLDER_CHOICES: Final = {
    "s": (
        _FROM_CLAUSE,
        _FROM_CLAUSE,
        "unnest([1, 2]) as x, edge_logs t",
        "edge_logs t left join unnest(t.metadata.a) as x on true",
    ),
    "o": OPERATORS,
    "t": TYPES,
    "c": FORMATS,
    "u": UNITS,
    "i": INTERVALS,
    "d": (*DATES, *DATETIMES, *TIMESTAMPS, *TIMES),
    "g": ("t.id", "o.id", "o.metadata.s", "t.metadata.n", "length(o.id)", "t.timestamp", "null"),
}


def _random_call(rng: random.Random, depth: int) -> str:
    return _vary_arguments(CALLS[rng.choice(_FUNCTION_NAMES)], rng, depth)


def _vary_arguments(call: str, rng: random.Random, depth: int) -> str:
    """Replace some arguments of a call at random.

    Other arguments stay unchanged, so that the function also runs with valid arguments.
    """
    written = _TYPED_LITERAL.sub(lambda literal_match: _vary_argument(literal_match, rng, depth), call)
    return f"safe.{written}" if rng.random() < 0.02 else written


def _vary_argument(match: re.Match[str], rng: random.Random, depth: int) -> str:
    chance, kind = rng.random(), str(match.lastgroup)
    if chance < 0.45:
        return match[0]
    if kind in ("unit", "interval"):
        return rng.choice(_ARGUMENTS_BY_TYPE[kind])
    if chance < 0.55 and depth:
        return _random_call(rng, depth - 1)
    if chance < 0.59:
        return rng.choice(OTHER_ARGUMENTS)
    if chance < 0.62:
        return rng.choice(rng.choice((NUMBERS, TEXTS, ARRAYS, JSONS, TIMESTAMPS, DATES)))
    return "null" if chance < 0.65 else rng.choice(_ARGUMENTS_BY_TYPE[kind])


def _corrupted(text: str, rng: random.Random) -> str:
    """Delete, duplicate or move one word or sign of the query's text."""
    words = re.findall(r"\w+|\s+|.", text)
    at, to = rng.randrange(len(words)), rng.randrange(len(words))
    change = rng.randrange(3)
    if change == 0:
        del words[at]
    elif change == 1:
        words.insert(to, words[at])
    else:
        words[at], words[to] = words[to], words[at]
    return "".join(words)


def _random_lql(rng: random.Random) -> str:
    clauses = ["f:edge_logs"] if rng.random() < 0.9 else []
    for _ in range(rng.randrange(6)):
        if rng.random() < 0.5:
            negated = "-" if rng.random() < 0.15 else ""
            clauses.append(f"{negated}{rng.choice(LQL_FIELDS)}:{rng.choice(LQL_VALUES)}")
        else:
            clauses.append(rng.choice(LQL_CLAUSES + LQL_VALUES))
    return " ".join(clauses)


def events(project: str, first_us: int) -> list[dict[str, object]]:
    """Return events with values of every type, at the paths that the random queries read."""
    texts = ("", "a", "1", "-1e9", "2024-01-01", "\u0130\u00df\u0000", '{"a": [1]}', "x" * 5000, "nan", None)
    numbers = (0, -1, 2**63 - 1, -(2**63), 1, 7, 10**18, 3, 2, None)
    floats = (0.5, -0.0, 1e308, 5e-324, -1.5, 2, 1e15, 3.25, 0.1, None)
    return [
        {
            "id": f"e{at}",
            "timestamp": first_us + at * 1_000_000,
            "event_message": text or "",
            "project": project,
            "metadata": {
                "project": project,
                "s": text,
                "n": numbers[at],
                "f": floats[at],
                "a": [1, None, 3][: at % 4],
                "o": {"b": text, "content type": numbers[at]},
                "l": (text, numbers[at], True, [text], {"z": 1})[at % 5],
            },
        }
        for at, text in enumerate(texts)
    ]


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()
