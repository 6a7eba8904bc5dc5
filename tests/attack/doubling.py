"""Queries that may grow exponentially: constructs of the grammar, nested so that each level repeats the level below.

Run as a program, the module compiles and runs each query on one engine, and prints a line of JSON with the time and
memory taken. If a query exhausts memory or time, only this process is affected.
"""

import importlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from zlib import crc32

from cordwood.catalog.catalog import CatalogSources
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.catalog.file_catalog import read_catalog
from cordwood.dialects import compile_sql_query, read_endpoint
from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine, DuckDBOptions
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.engines.engine import AnswerLimits, Engine, ReadProgress
from cordwood.errors import Fault
from cordwood.lql.compile import compile_lql
from cordwood.model.event import EventShape, ValueKind
from cordwood.sql.bind import bind_parameters
from cordwood.sql.compile import compile_sandbox_query
from cordwood.sql.stages import Statement

NESTING_LEVELS = (12, 40)
# In the full run, each query runs on both engines; otherwise on only one, because most of the work is the same for
# both.
IS_FULL = os.environ.get("TORTURE") == "full"

# Templates of a CTE that reads the previous CTE, `p`. Each CTE has the columns x and m.
CTE_TEMPLATES: Mapping[str, str] = {
    "join": "select a.x, a.m from {p} a, {p} b where a.x = b.x",
    "join using": "select x, a.m from {p} a join {p} b using (x)",
    "left join": "select a.x, b.m from {p} a left join {p} b on a.x = b.x",
    "full join": "select a.x, b.m from {p} a full join {p} b on a.x = b.x",
    "three joins": "select a.x, c.m from {p} a, {p} b, {p} c where a.x = b.x and b.x = c.x",
    "union": "select x, m from {p} union all select x, m from {p}",
    "except": "select x, m from {p} except distinct select x, m from {p}",
    "intersect": "select x, m from {p} intersect distinct select x, m from {p}",
    "exists": "select x, m from {p} p where exists (select 1 from {p} q where q.x = p.x)",
    "in": "select x, m from {p} where x in (select x from {p})",
    "two sub-queries": "select x, m from {p} where exists (select 1 from {p}) or exists (select 1 from {p})",
    "scalar": "select (select max(x) from {p}) as x, (select max(m) from {p}) as m",
    "array": "select array_to_string(array(select x from {p}), ',') as x, m from {p}",
    "derived": "select a.x, b.m from (select * from {p}) a, (select * from {p}) b",
    "correlated": "select x, (select max(q.x) from {p} q where q.x = p.x) as m from {p} p",
    "concat": "select x || x as x, m || m as m from {p}",
    "filtered": "select x || x as x, m from {p} where x || x <> m || m",
    "if": "select if(x = m, x, m) as x, if(m = x, m, x) as m from {p}",
    "case": "select case x when m then x else m end as x, m from {p}",
    "coalesce": "select coalesce(nullif(x, m), x) as x, m from {p}",
    "row": "select to_json_string(p) as x, to_json_string(p) as m from {p} p",
    "struct": "select struct(x, x, m) as x, m from {p}",
    "two stars": "select *, * from {p}",
    "star replaced": "select * replace (x || x as x) from {p}",
    "grouped": "select x, max(m || m) as m from {p} group by x, x || x",
    "cube": "select max(x) as x, max(m) as m from {p} group by cube(x, m, x || m, m || x)",
    "window": "select max(x) over (partition by m order by x) || x as x, m || x as m from {p}",
    "pivot": "select a as x, b as m from (select x, m from {p}) pivot(max(x) for m in ('a' as a, 'b' as b))",
    "recursive": "(with recursive r as (select x, m from {p} union all select x || x, m from r) select x, m from r)",
    "own with": "with q as (select x, m from {p}) select a.x, b.m from q a, q b",
}

# Templates of an expression that contains the expression `e`. Each nesting level replaces `e` by the previous level's
# expression.
EXPRESSION_TEMPLATES: Mapping[str, str] = {
    "nullif": "nullif({e}, '')",
    "coalesce": "coalesce(nullif({e}, ''), '')",
    "ifnull": "ifnull({e}, '')",
    "with expression": "with(a as {e}, b as a || a, b || b)",
    "scalar sub-query": "(select max(x) from unnest([{e}, '']) x)",
    "array sub-query": "array_to_string(array(select y from unnest([{e}, '']) y), ',')",
    "split": "array_to_string(split({e}, ','), ',')",
    "in": "cast({e} in ('a', 'b') as string)",
    "between": "cast({e} between 'a' and 'b' as string)",
    "like": "cast({e} like 'a%' as string)",
    "case": "case {e} when 'a' then 'b' else 'c' end",
    "if": "if({e} = 'a', 'b', 'c')",
    "format": "format('%s %t %T', {e}, 'b', 'c')",
    "json": "to_json_string(json_object('a', {e}))",
    "json value": "json_value({e}, '$.a')",
    "safe cast": "cast(safe_cast({e} as int64) as string)",
    "safe": "safe.substr({e}, 1)",
    "timestamp": "format_timestamp('%A %Y', timestamp({e}))",
    "zone": "string(timestamp({e}), 'Europe/Berlin')",
    "date": "cast(date_add(date({e}), interval 1 month) as string)",
    "parse": "cast(parse_timestamp('%Y-%m-%d', {e}) as string)",
    "extract": "cast(extract(isoweek from timestamp({e})) as string)",
    "array": "array_to_string(array_reverse([{e}, 'a']), '')",
    "slice": "[{e}, 'a'][safe_offset(0)]",
    "struct": "struct({e} as a, 'b' as b).a",
    "pad": "lpad({e}, 5, 'x')",
    "replace": "regexp_replace({e}, 'a', 'b')",
    "extract all": "array_to_string(regexp_extract_all({e}, 'a'), '')",
    "translate": "translate({e}, 'ab', 'cd')",
    "initcap": "initcap({e})",
    "instr": "cast(instr({e}, 'a', 1, 2) as string)",
    "substr": "substr({e}, -2, 1)",
    "hash": "to_hex(md5({e}))",
    "code points": "code_points_to_string(to_code_points({e}))",
    "round": "cast(round(safe_cast({e} as float64), 2) as string)",
    "add": "cast(safe_cast({e} as int64) + 1 as string)",
    "divide": "cast(safe_divide(safe_cast({e} as int64), 3) as string)",
    "mod": "cast(mod(safe_cast({e} as int64), 3) as string)",
    "greatest": "greatest({e}, 'a', 'b')",
    "net host": "net.host({e})",
    "a function of a data set": "some.function({e})",
    "a function of a project": "`some-project`.data.function({e})",
    "soundex": "soundex({e})",
    "not": "cast(not (not ({e} is null)) as string)",
}

PIPE_TEMPLATES: Mapping[str, str] = {
    "extend": " |> extend x || x as y{n} |> where y{n} <> ''",
    "select": " |> select x || x as x, m",
    "select star": " |> select *, *",
    "join": " |> join edge_logs j{n} on j{n}.id = x |> select x, m",
    "aggregate": " |> aggregate max(x || m) as m group by x",
    "union": " |> union all (select id as x, event_message as m from edge_logs)",
    "order and cut": " |> order by x |> limit 10",
    "as": " |> as t{n} |> where t{n}.x <> ''",
}


# Templates of expressions in ClickHouse's dialect.
CLICKHOUSE_EXPRESSION_TEMPLATES: Mapping[str, str] = {
    "type": "Dynamic({e})",
    "other type": "Struct({e})",
    "cast": "CAST({e} AS String)",
    "cast by a sign": "({e})::String",
    "if": "if({e} = 'a', 'b', 'c')",
    "concat": "concat({e}, 'a')",
    "lower": "lower({e})",
    "number": "toString(toInt32OrZero({e}))",
    "float": "toString(toFloat64OrNull({e}))",
    "round": "toString(round(toFloat64OrZero({e}), 2))",
    "time": "toString(toDateTime({e}))",
    "split": "splitByChar(',', {e})[1]",
    "position": "toString(position({e}, 'a'))",
    "json": "JSONExtractString({e}, 'a')",
    "json number": "toString(JSONExtractInt({e}, 'a', 'b'))",
    "map": "map('a', {e})['a']",
    "null": "coalesce(nullIf({e}, ''), '')",
    "between": "toString({e} BETWEEN 'a' AND 'b')",
    "case": "CASE {e} WHEN 'a' THEN 'b' ELSE 'c' END",
    "brackets": "(({e}))",
    "tuple": "toString(({e}, 'a') < ('b', 'c'))",
    "tuple among tuples": "toString(({e}, 'a') IN (('b', 'c'), ('d', 'e')))",
    "without an end": "left({e}, -1)",
    "format": "formatDateTime(toDateTime({e}), '%e %f')",
    "a key that is read": "log_attributes[{e}]",
}


def construct_queries_for(engine: str, levels: int) -> Iterator[tuple[str, str]]:
    """Yield all queries in the full run; otherwise the half of them that a hash assigns to the engine."""
    for name, text in construct_queries(levels):
        if IS_FULL or (crc32(f"{name}, {levels}".encode()) % 2 == 0) is (engine == "duckdb"):
            yield name, text


def construct_queries(levels: int) -> Iterator[tuple[str, str]]:
    """Yield a name and a query for each construct of the grammar."""
    for name, body in CTE_TEMPLATES.items():
        ctes = [f"c{n} as ({body.format(p=f'c{n - 1}')})" for n in range(1, levels + 1)]
        first = "c0 as (select id as x, event_message as m from edge_logs)"
        yield (
            f"query: {name}",
            f"with {', '.join([first, *ctes])} select count(*) as n from c{levels} where x is not null",
        )
    for name, around in EXPRESSION_TEMPLATES.items():
        yield f"expression: {name}", f"select {_nest_template(around, levels)} as v from edge_logs"
        yield f"filter: {name}", f"select count(*) as n from edge_logs where {_nest_template(around, levels)} <> ''"
    for name, step in PIPE_TEMPLATES.items():
        steps = "".join(step.format(n=n) for n in range(levels))
        yield f"pipe: {name}", f"from edge_logs |> select id as x, event_message as m{steps} |> aggregate count(*) as n"
    for name, around in CLICKHOUSE_EXPRESSION_TEMPLATES.items():
        yield (
            f"ClickHouse: {name}",
            f"SELECT {_nest_template(around, levels)} AS v FROM logs WHERE source = 'edge_logs'",
        )
    yield from _other_queries(levels)
    yield from _clickhouse_queries(levels)


def _clickhouse_queries(n: int) -> Iterator[tuple[str, str]]:
    first = "event_message AS a0, source"
    aliases = ", ".join(f"concat(a{i}, a{i}) AS a{i + 1}" for i in range(n))
    yield "ClickHouse: aliases", f"SELECT {first}, {aliases} FROM logs"
    values = ", ".join(f"concat(a{i}, a{i}) AS a{i + 1}" for i in range(n))
    yield "ClickHouse: values of WITH", f"WITH event_message AS a0, {values} SELECT a{n} AS v FROM logs"
    steps = ", ".join(f"c{i + 1} AS (SELECT x FROM c{i} UNION ALL SELECT x FROM c{i})" for i in range(n))
    yield "ClickHouse: WITH", f"WITH c0 AS (SELECT id AS x FROM logs), {steps} SELECT count() AS n FROM c{n}"
    steps = ", ".join(f"c{i + 1} AS (SELECT concat(x, x) AS x FROM c{i})" for i in range(n))
    yield "ClickHouse: texts of WITH", f"WITH c0 AS (SELECT id AS x FROM logs), {steps} SELECT count() AS n FROM c{n}"
    yield "ClickHouse: unions", " UNION ALL ".join(["(SELECT id FROM logs)"] * n)
    joined = ", ".join(f"arrayJoin([1, {i}]) AS k{i}" for i in range(n))
    yield "ClickHouse: arrayJoin", f"SELECT {joined} FROM logs WHERE source = 'edge_logs'"
    yield "ClickHouse: a key", f"SELECT log_attributes['{'.'.join('a' * n)}'] AS v FROM logs"
    keys = ", ".join(f"log_attributes['a.a.k{i}'] AS k{i}" for i in range(n))
    yield "ClickHouse: keys", f"SELECT {keys} FROM logs WHERE source = 'edge_logs'"
    yield (
        "ClickHouse: a map",
        "SELECT log_attributes, mapKeys(log_attributes) AS k FROM logs ORDER BY timestamp LIMIT 5",
    )


def _nest_template(around: str, levels: int) -> str:
    text = "event_message"
    for _ in range(levels):
        text = around.replace("{e}", text)
    return text


def _other_queries(n: int) -> Iterator[tuple[str, str]]:
    windows = ", ".join(f"w{i} as (w{i - 1})" for i in range(1, n))
    yield "named windows", f"select max(id) over w{n - 1} as v from edge_logs window w0 as (order by id), {windows}"
    values = ", ".join([f"a{i} as a{i - 1} || a{i - 1}" for i in range(1, n)])
    yield "values of WITH", f"select with(a0 as event_message, {values}, a{n - 1}) as v from edge_logs"
    keys = ", ".join(f"substr(event_message, {i}, 1)" for i in range(n))
    yield "cube", f"select count(*) as n from edge_logs group by cube({keys})"
    yield "rollup", f"select count(*) as n from edge_logs group by rollup({keys})"
    sets = ", ".join(f"rollup(substr(id, {i}, 1), substr(id, {i}, 2), substr(id, {i}, 3))" for i in range(n))
    yield "rollups", f"select count(*) as n from edge_logs group by {sets}"
    yield "joins", "select count(*) as n from " + ", ".join(f"edge_logs t{i}" for i in range(3 * n))
    ons = " ".join(f"full join edge_logs t{i} using (id)" for i in range(1, 3 * n))
    yield "full joins", f"select count(*) as n from edge_logs t0 {ons}"
    yield "joined arrays", "select count(*) as n from " + ", ".join(f"unnest([1]) t{i}" for i in range(3 * n))
    inner = "".join(f"exists (select 1 from edge_logs t{i} where t{i}.id = t{i - 1}.id and " for i in range(1, n))
    yield "nested sub-queries", f"select 1 as n from edge_logs t0 where {inner}true{')' * (n - 1)}"
    yield "nested stars", f"select count(*) as n from {'(select *, * from ' * n}edge_logs{')' * n}"
    aliases = ", ".join(f"length(event_message) + {i} as a{i}" for i in range(n))
    used = " + ".join(f"a{i}" for i in range(n))
    yield "aliases", f"select {aliases} from edge_logs order by {', '.join([f'{used} + {i}' for i in range(n)])}"
    yield (
        "distinct counts",
        "select " + ", ".join(f"count(distinct substr(id, {i}))" for i in range(10 * n)) + " from edge_logs",
    )
    yield "a path of records", f"select m.{'.'.join('a' * n)} as v from edge_logs t cross join unnest(t.metadata) m"
    arrays = "".join(f" cross join unnest(m{i}.a) as m{i + 1}" for i in range(n))
    yield "a path of arrays", f"select m{n} as v from edge_logs t cross join unnest(t.metadata) m0{arrays}"
    yield "LQL: a path", f"f:edge_logs m.{'.'.join('a' * n)}:x"
    yield "LQL: filters", "f:edge_logs " + " ".join(f"m.k{i}:~x{i}" for i in range(n))
    yield "LQL: a chart", f"f:edge_logs c:count(*) c:group_by(t::minute) m.{'.'.join('a' * n)}:>1"


def deep_shape(depth: int) -> EventShape:
    """Return a shape with paths of up to `depth` steps, each of which may have objects, arrays and texts.

    Some of its keys differ only in case.
    """
    kinds = frozenset({ValueKind.OBJECT, ValueKind.ARRAY, ValueKind.TEXT})
    paths = [("metadata", *keys) for n in range(depth) for keys in (("a",) * n, ("a",) * n + ("A",), ("a", "[]") * n)]
    return EventShape(dict.fromkeys(paths, kinds))


def open_engine(name: str) -> Engine:
    if name == "duckdb":
        return DuckDBEngine(Path(tempfile.mkdtemp()), DuckDBTarget(), DuckDBOptions(memory_bytes=256 * 2**20))
    module = importlib.import_module("cordwood.engines.clickhouse.clickhouse_engine")
    engine: Engine = module.ClickHouseEngine(
        f"chdb://{tempfile.mkdtemp()}", module.ClickHouseOptions(max_query_memory_bytes=256 * 2**20)
    )
    return engine


class NeverCancelled:
    """A cancel token that is never cancelled."""

    def on_cancel(self, stop: Callable[[], None]) -> None:
        pass

    def set_progress_reader(self, read: ReadProgress) -> None:
        pass


class QueryMeter:
    """A compiler and an engine over empty streams, which measure the time and memory that each query takes."""

    def __init__(self, engine: Engine) -> None:
        file = resources.files("cordwood") / "endpoints" / "logs.all.sql"
        self._program = read_endpoint(read_endpoint_file("logs.all.sql", file.read_text()))
        self._engine = engine
        file = resources.files("cordwood") / "endpoints" / "logs.all.otel.sql"
        self._clickhouse = read_endpoint(read_endpoint_file("logs.all.otel.sql", file.read_text()))
        streams = read_catalog(CatalogSources(), lambda *_: None).streams
        engine.create_stream_tables(streams)
        self._shapes = dict.fromkeys((stream.name for stream in streams), deep_shape(24))

    def __call__(self, name: str, text: str) -> dict[str, object]:
        before, began = _peak_bytes(), time.thread_time()
        planned, code = 0.0, "answered"
        try:
            statement = self._compiled(name, text)
        except Fault as fault:
            return {
                "code": fault.code,
                "compile": time.thread_time() - began,
                "plan": 0,
                "bytes": _peak_bytes() - before,
            }
        compiled, began = time.thread_time() - began, time.process_time()
        try:
            self._answer(statement)
        except Fault as fault:
            code = fault.code
        planned = time.process_time() - began
        return {"code": code, "compile": compiled, "plan": planned, "bytes": _peak_bytes() - before}

    def _compiled(self, name: str, text: str) -> Statement:
        if name.startswith("ClickHouse"):
            return compile_sql_query(self._clickhouse, text, self._engine.compile_target, self._shapes)
        compile_ = compile_lql if name.startswith("LQL") else compile_sandbox_query
        return compile_(self._program, text, self._engine.compile_target, self._shapes)

    def _answer(self, statement: Statement) -> None:
        question = bind_parameters(statement, {"project": "p"}, 0, self._engine.regex_error)
        rows = self._engine.answer(question, AnswerLimits(1000, 20.0), NeverCancelled())
        for _ in rows.batches:
            pass


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(engine: str, max_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (max_bytes, max_bytes))
    measured = QueryMeter(open_engine(engine))
    for levels in NESTING_LEVELS:
        for name, text in construct_queries_for(engine, levels):
            line = {"name": f"{name}, {levels}", "text": text[:300], **measured(name, text)}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
