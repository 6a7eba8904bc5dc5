"""A generator of random queries over private values, with every clause, join, set operation, window, pivot and pipe.

The same seed gives the same sequence of queries. A query depends only on the seed and on its number in the sequence.
"""

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Final, TypeVar

import msgspec

from tests.attack.redaction_grammar import (
    AGGREGATES,
    CONSTANTS_BY_PLACEHOLDER,
    LQL_ENDINGS,
    LQL_QUERIES,
    ORDINAL_SPELLINGS,
    SCALARS,
    WINDOWS,
)

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z])\}")
_MAX_DEPTH: Final = 3

T = TypeVar("T")

# Expressions that read the columns of a relation, by their type.
_ExpressionsByType = dict[str, tuple[str, ...]]


class RandomQuestion(msgspec.Struct, frozen=True):
    text: str
    language: str = "sql"


class _Relation(msgspec.Struct, frozen=True):
    from_clause: str
    expressions: _ExpressionsByType


_UNNEST_REQUEST: Final = "cross join unnest(l.metadata) m cross join unnest(m.request) r"
_TEXTS_OF_REQUEST: Final = (
    "r.ip",
    "r.ip6",
    "r.card",
    "r.password",
    "r.api_key",
    "r.method",
    "r.nothing",
    "r.mixed",
    "m.inner",
)
_RELATIONS: Final = (
    _Relation("logs l", {"S": ("l.event_message", "l.who", "l.whence", "l.id"), "T": ("l.timestamp",), "I": ("1",)}),
    _Relation("again l", {"S": ("l.event_message", "l.who", "l.id"), "I": ("1",)}),
    _Relation(
        "flat l",
        {"S": ("l.ip", "l.card", "l.mixed", "l.event_message", "l.who", "l.id"), "I": ("l.status",), "T": ("l.timestamp",)},
    ),
    _Relation(f"logs l {_UNNEST_REQUEST}", {"S": (*_TEXTS_OF_REQUEST, "l.event_message", "l.id"), "I": ("r.status",), "T": ("l.timestamp",)}),
    _Relation(f"logs l {_UNNEST_REQUEST} cross join unnest(r.texts) x with offset o", {"S": ("x", "r.ip", "l.id"), "I": ("o",)}),
    _Relation(f"logs l {_UNNEST_REQUEST} left join unnest(r.headers) h", {"S": ("h.value", "h.name", "l.id"), "I": ("r.status",)}),
    _Relation(f"logs l {_UNNEST_REQUEST} cross join unnest(r.list) x", {"S": ("x", "l.who", "l.id"), "I": ("r.status",)}),
    _Relation("logs l cross join unnest(split(l.who, '.')) x with offset as o", {"S": ("x", "l.who", "l.id"), "I": ("o",)}),
    _Relation(
        "(select event_message as e, who as w, id, timestamp from logs order by (1) limit 9) l",
        {"S": ("l.e", "l.w", "l.id"), "T": ("l.timestamp",), "I": ("2",)},
    ),
    _Relation(
        "(select a.who as w, b.event_message as e, a.id from logs a join again b on a.id = b.id) l", {"S": ("l.e", "l.w", "l.id")}
    ),
    _Relation("(logs l join again b on l.event_message = b.event_message)", {"S": ("l.who", "b.event_message", "l.id")}),
    _Relation("logs l left join again b on l.who = b.who and b.id < l.id", {"S": ("l.who", "b.event_message", "l.id")}),
    _Relation("logs l right join (select who as v, max(id) as j from again group by 1) b on l.who = b.v", {"S": ("b.v", "l.id")}),
    _Relation("logs l full join flat b using (id)", {"S": ("l.who", "b.ip", "id", "b.card")}),
    _Relation("logs l join again b using (id, who)", {"S": ("who", "id", "b.event_message")}),
    _Relation("logs l cross join unnest(['203.0.113.7', 'x', 'REDACTED']) v", {"S": ("v", "l.who", "l.id")}),
)  # fmt: skip
_CONSTANTS_BY_TYPE: Final[_ExpressionsByType] = {
    "S": ("cast(null as string)",), "I": ("7", "12"), "F": ("1.5", "0.0"), "B": ("true", "false"),
    "T": ("timestamp '2025-11-13 02:13:20'",), "D": ("date '2026-01-02'",), "E": ("datetime '2026-01-02 03:04:05'",),
    "M": ("time '03:04:05'",), "Y": ("b'ab'",), "A": ("['a', '203']",), "N": ("[1, 2]",),
    "J": ("json '{\"a\": \"x\", \"b\": 1, \"c\": true}'",),
}  # fmt: skip
_SELECTED_TYPES: Final = "SSSSSIIFBBTDEMYANJ"


def random_questions(seed: int) -> Iterator[RandomQuestion]:
    """Yield an endless sequence of random queries, which depends only on the seed."""
    number = 0
    while True:
        yield _QuestionMaker(Random(f"{seed} {number}")).question()
        number += 1


class _QuestionMaker:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._relation = random.choice(_RELATIONS)

    def question(self) -> RandomQuestion:
        if self._random.random() < 0.08:
            text = f"{self._random.choice(LQL_QUERIES)} {self._random.choice(LQL_ENDINGS)}"
            return RandomQuestion(text.strip(), "lql")
        return RandomQuestion(self._one_of(_FORMS)(self))

    # Templates of expressions.

    def value(self, kind: str, depth: int = _MAX_DEPTH) -> str:
        leaves = self._relation.expressions.get(kind, ())
        if depth <= 0 or (leaves and self._random.random() < 0.5):
            return self._one_of(leaves or _CONSTANTS_BY_TYPE[kind])
        return self._filled(self._one_of(SCALARS[kind]), depth - 1)

    def key(self) -> str:
        """Return an expression by which a query sorts, groups or joins. In most cases, it is a private value itself."""
        return self.value("S", self._one_of((0, 0, 0, 1)))

    def _filled(self, template: str, depth: int) -> str:
        def fill(placeholder: re.Match[str]) -> str:
            kind = placeholder[1]
            if kind in CONSTANTS_BY_PLACEHOLDER:
                return self._one_of(CONSTANTS_BY_PLACEHOLDER[kind])
            if kind == "O":
                return f"{self._partition()}order by {self.key()}{self._one_of(('', ' desc'))}, {self._id()}"
            if kind == "W":
                return self._partition()
            return f"({self.value(kind, depth)})" if kind == "B" else self.value(kind, depth)

        return _PLACEHOLDER.sub(fill, template)

    def _partition(self) -> str:
        return self._one_of(("", f"partition by {self.key()} ", "partition by 1 "))

    def _id(self) -> str:
        return next((item for item in self._relation.expressions["S"] if item.endswith("id")), "1")

    def _one_of(self, choices: tuple[T, ...]) -> T:
        return self._random.choice(choices)

    def aggregate(self) -> str:
        kind = self._one_of(tuple("SSIIIFBA"))
        return self._filled(self._one_of(AGGREGATES[kind]), 1)

    def window(self) -> str:
        return self._filled(self._one_of(WINDOWS[self._one_of(tuple("SIIF"))]), 1)

    # Templates of clauses.

    def where(self) -> str:
        return self._one_of(
            ("", f" where {self.value('B')}", f" where {self.value('B', 1)}", f" where {self._sub_query_condition()}")
        )

    def _sub_query_condition(self) -> str:
        """Return a WHERE condition that contains a sub-query."""
        key = self.key()
        return self._one_of(
            (
                f"{key} in (select who from again where {key} = event_message or who is not null)",
                f"{key} not in (select ip from flat where ip is not null)",
                f"exists (select 1 from again q where q.who = {key} and q.event_message like '%203%')",
                f"{key} = (select max(who) from again)",
                f"{key} < any (select who from again)",
                f"(select count(*) from flat q where q.ip = {key}) > 1",
                f"{key} = (select event_message from again order by (1) limit 1)",
            )
        )

    def ordinal(self, maximum: int) -> str:
        return self._one_of(ORDINAL_SPELLINGS).replace("#", str(self._random.randint(1, maximum)))

    def order(self, maximum: int) -> str:
        """Return an ORDER BY clause. In some cases, it has further keys."""
        first = self._one_of((self.ordinal(maximum), self.ordinal(maximum), self._one_of(("1", "2")), self.key()))
        direction = self._one_of(("", " desc", " asc nulls last", " nulls first"))
        second_key = self._one_of(("", f", {self.ordinal(maximum)}", ", 1, 2"))
        return f" order by {first}{direction}{second_key}"

    def ending(self, maximum: int) -> str:
        limit = self._one_of(("", " limit 3", " limit 1 offset 2", " limit 5"))
        return f"{self.order(maximum) if self._random.random() < 0.7 else ''}{limit}"

    # Templates of whole queries.

    def plain_query(self) -> str:
        columns = f"{self.key()} as a, {self._id()} as b"
        second_value = self.value(self._one_of(tuple(_SELECTED_TYPES)))
        items = self._one_of((columns, f"{second_value} as c, {columns}", f"{second_value} as c, {self._id()} as b"))
        return f"select {items} from {self._relation.from_clause}{self.where()}{self.ending(2)}"

    def star_query(self) -> str:
        star_item = self._one_of(("*", "* except (id)", "* replace (upper(who) as who)", "l.*", "l.id, l.*"))
        relation = self._one_of(("logs l", "again l", "(select id, who, event_message from logs) l"))
        self._relation = _RELATIONS[1]
        return f"select {star_item} from {relation}{self.where()}{self.ending(2)}"

    def grouping_query(self) -> str:
        key, second_key = self.key(), self.key()
        by = self._one_of(("1", "(1)", "01", "0x1", "a", "all", f"{key}", "1, 2", "rollup(1, 2)", "cube(a, b)",
                           f"grouping sets (({key}), ({second_key}), ())", f"rollup({key}, {second_key})", "-(-1)", "1 + 0", "true", "'a'"))  # fmt: skip
        items = f"{key} as a, {second_key} as b" if "2" in by or "b)" in by or second_key in by else f"{key} as a"
        items += self._one_of(("", ", grouping(1)", f", grouping({key})")) if "(" in by and "sets" in by else ""
        having = self._one_of(("", "", f" having {self._filled(self._one_of(AGGREGATES['B']), 1)}"))
        return f"select {items}, {self.aggregate()} as n from {self._relation.from_clause}{self.where()} group by {by}{having}{self.ending(2)}"

    def aggregating_query(self) -> str:
        aggregates = ", ".join(self.aggregate() for _ in range(self._random.randint(1, 3)))
        return f"select {aggregates} from {self._relation.from_clause}{self.where()}"

    def distinct_query(self) -> str:
        return f"select distinct {self.key()} as a, {self.key()} as b from {self._relation.from_clause}{self.ending(2)}"

    def window_query(self) -> str:
        qualify = self._one_of(("", f" qualify row_number() over (order by {self.key()}, {self._id()}) <= 3",
                                f" qualify {self.window()} is not null"))  # fmt: skip
        items = f"{self._id()} as b, {self.window()} as n, {self.key()} as a"
        return f"select {items} from {self._relation.from_clause}{self.where()}{qualify}{self.ending(3)}"

    def named_window_query(self) -> str:
        over = f"{self._partition()}order by {self.key()}, {self._id()}"
        return (
            f"select {self._id()} as b, row_number() over w as n, lag({self.key()}) over w as a, count(*) over (v) as c"
            f" from {self._relation.from_clause} window w as ({over}), v as (partition by {self.key()}){self.ending(3)}"
        )

    def union_query(self) -> str:
        operation = self._one_of(("union all", "union distinct", "intersect distinct", "except distinct", "union all by name",
                                  "full outer union all by name", "left outer union all by name"))  # fmt: skip
        sides = []
        for _ in range(2):
            self._relation = self._one_of(_RELATIONS)
            order = self._one_of(("", f"{self.order(2)} limit 2"))
            sides.append(f"(select {self.key()} as a, {self._id()} as b from {self._relation.from_clause}{order})")
        return f"{sides[0]} {operation} {sides[1]}{self._one_of(('', f' order by {self.ordinal(2)}', ' order by a, b', ' order by 1, 2'))}"

    def cte_query(self) -> str:
        inner, self._relation = self.plain_query(), _Relation("t l", {"S": ("l.b",)})
        return f"with t as ({inner}), u as (select * from t) {self._one_of((self.plain_query, self.aggregating_query, self.window_query, self.distinct_query))()}"

    def recursive_query(self) -> str:
        step = self._one_of(
            (
                "select substr(a, 2), n + 1 from t where n < 3 and length(a) > 3",
                "select a, n + 1 from t where n < 3 and a > '2'",
            )
        )
        return f"with recursive t as (select {self.key()} as a, 0 as n from {self._relation.from_clause} union all {step}) select a, n from t order by 1, 2"

    def nested_query(self) -> str:
        key = self.key()
        inner = self._one_of(
            (
                f"(select max(q.who) from again q where q.event_message != {key})",
                f"array(select q.event_message from again q where q.who = {key} order by (1))",
                f"array(select as struct q.who, q.id from again q where q.who <= {key} order by 2 limit 2)",
                f"(select as struct q.who as x, q.id as y from again q order by {self.ordinal(2)} limit 1).x",
                f"(select count(*) from flat q where q.card > {key})",
                "(select string_agg(q.id, ',' order by q.ip, q.id) from flat q)",
                f"exists (select 1 from flat q where q.ip = {key} and q.id != {self._id()})",
                f"(with v as (select who as w from again order by {self.ordinal(1)} limit 1) select w from v)",
            )
        )
        return f"select {self._id()} as b, {inner} as a from {self._relation.from_clause}{self.where()}{self.ending(2)}"

    def derived_table_query(self) -> str:
        inner = self._one_of((self.plain_query, self.window_query, self.distinct_query, self.grouping_query))()
        self._relation = _Relation(f"({inner}) l", {"S": ("l.a",)})
        over = f"select l.a from {self._relation.from_clause}{self.ending(1)}"
        return self._one_of((self.aggregating_query(), self.distinct_query(), over))

    def pipe_query(self) -> str:
        steps = [
            f"|> where {self.value('B', 1)}",
            f"|> extend {self.value('S', 1)} as c",
            f"|> select {self.key()} as a, {self._id()} as b",
            f"|> order by {self.ordinal(2)}",
            "|> limit 3",
            "|> distinct",
            f"|> aggregate {self.aggregate()} as n",
            f"|> aggregate count(*) as n group by {self.key()}",
        ]
        last_step = self._one_of(
            (
                f"|> select {self.key()} as a, {self._id()} as b |> order by {self.ordinal(2)} |> limit 2",
                "|> limit 2",
                "",
            )
        )
        chosen = [*self._random.sample(steps[:2], k=self._random.randint(0, 2)), self._one_of(tuple(steps[2:]))]
        return f"from {self._relation.from_clause} {' '.join(chosen)} {last_step if chosen[-1] in steps[:2] else self._one_of(('', '|> limit 2'))}"

    def pivot_query(self) -> str:
        source = f"(select {self.key()} as k, {self.value('I', 1)} as v, {self._id()} as j from {self._relation.from_clause})"
        return self._one_of(
            (
                f"select * from {source} pivot(sum(v) as s, count(*) as n for k in ('203.0.113.7' as p, 'REDACTED' as q)) order by 1",
                f"select * from {source} pivot(max(k) for v in (1, 200))",
                f"select * from (select {self.key()} as x, {self.key()} as y from {self._relation.from_clause}) unpivot(v for k in (x, y)) order by 1, 2",
            )
        )

    def struct_query(self) -> str:
        kind = self._one_of(("as struct", "as value"))
        items = f"{self.key()} as a, {self._id()} as b"
        items = items if kind == "as struct" else f"struct({items})"
        return f"select {kind} {items} from {self._relation.from_clause}{self.where()}{self.ending(1)}"

    def whole_value_query(self) -> str:
        """Return a query that reads a whole row, object or array, or its JSON text."""
        item = self._one_of(("to_json_string(l)", "to_json(l)", "l", "metadata", "to_json_string(metadata)", "metadata[0].request[0].ip",
                             "metadata[0].request[0].texts[safe_offset(length(who) - 9)]", "metadata[0].request[0].texts[offset(1)]",
                             "array_length(metadata[0].request[0].list)", "[who, event_message]", "struct(metadata, who)",
                             "coalesce(metadata.request.nothing, metadata.request.password)", "metadata.request.`10.9.9.9`",
                             "coalesce(metadata.request.lacking, metadata.request.ip)", "(select x.value from unnest(metadata.request.headers) x limit 1)",
                             "array(select t from unnest(metadata.request.texts) t with offset o order by o desc)",
                             "json_keys(to_json(metadata))", "metadata.request.password is null"))  # fmt: skip
        self._relation = _RELATIONS[0]
        return f"select l.id as b, {item} as a from logs l{self.where()}{self.ending(2)}"


_FORMS: Final[tuple[Callable[[_QuestionMaker], str], ...]] = (
    _QuestionMaker.plain_query, _QuestionMaker.plain_query, _QuestionMaker.plain_query, _QuestionMaker.star_query, _QuestionMaker.grouping_query, _QuestionMaker.grouping_query, _QuestionMaker.aggregating_query, _QuestionMaker.distinct_query,
    _QuestionMaker.window_query, _QuestionMaker.named_window_query, _QuestionMaker.union_query, _QuestionMaker.union_query, _QuestionMaker.cte_query, _QuestionMaker.recursive_query, _QuestionMaker.nested_query, _QuestionMaker.derived_table_query,
    _QuestionMaker.pipe_query, _QuestionMaker.pivot_query, _QuestionMaker.struct_query, _QuestionMaker.whole_value_query,
)  # fmt: skip
