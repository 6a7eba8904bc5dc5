"""Cache keys: requests share one exactly if nothing that differs between them can change the answer."""

import asyncio

import msgspec
import pytest

from cordwood.access import apply_pins
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter
from cordwood.model.key import Caller
from cordwood.serve.cached_answers import cache_key
from cordwood.serve.query_request import Language, QueryRequest, SandboxText
from cordwood.sql.plan import BlockFilter, EventRange, OptionalPredicate, Plan, Variant, fixed_plan
from cordwood.sql.stages import Statement
from cordwood.web.encode import FORMATS, JSON_ROWS
from tests.unit.serve.harness import CALLER, UNCACHED, WARMED, ServeHarness, ask

ALL = "select * from numbers"
UNSEEN_PATH = msgspec.structs.replace(
    WARMED, sql="select m.a as x from `s` as t cross join unnest(t.metadata) as m", revision="unseen", parameters=()
)


EXACT = msgspec.structs.replace(
    WARMED,
    sql="select @numeric as n, @bignumeric as b",
    revision="exact",
    parameters=(Parameter("numeric", Kind.NUMERIC), Parameter("bignumeric", Kind.BIGNUMERIC)),
)


def sandboxed(text: str, **parameters: str) -> QueryRequest:
    return QueryRequest(WARMED, CALLER, JSON_ROWS, parameters, SandboxText(Language.SQL, text))


GROUPED = "select project, count(*) as n from numbers where ratio > 1 group by project order by n limit 5"


def in_lql(text: str) -> QueryRequest:
    return QueryRequest(WARMED, CALLER, JSON_ROWS, {}, SandboxText(Language.LQL, text))


def pinned_to(pin: str, **parameters: str) -> QueryRequest:
    caller = Caller("key-2", frozenset({"query"}), {"project": pin})
    return msgspec.structs.replace(ask(), caller=caller, parameters=apply_pins(caller, parameters, WARMED))


def key(asked: QueryRequest) -> bytes:
    async def found() -> bytes:
        harness = ServeHarness()
        job = await harness.answers._job(asked)
        await harness.answers.close()
        return cache_key(asked, job.question)

    return asyncio.run(found())


SHARED: dict[str, tuple[QueryRequest, QueryRequest]] = {
    "another key": (
        ask(project="a"),
        msgspec.structs.replace(ask(project="a"), caller=Caller("other", frozenset({"query"}))),
    ),
    "an unknown parameter": (ask(project="a"), ask(project="a", ref="x", project_tier="")),
    "the key as a parameter": (ask(project="a"), ask(project="a", api_key="secret")),
    "the order of parameters": (ask(project="a", ratio="1"), ask(ratio="1", project="a")),
    "a default filled in": (ask(), ask(project="default")),
    "1 and 1.0": (ask(ratio="1"), ask(ratio="1.0")),
    "1e0 and 1": (ask(ratio="1e0"), ask(ratio="1")),
    "one moment in two zones": (ask(since="2026-01-01T12:00:00Z"), ask(since="2026-01-01T14:00:00+02:00")),
    "one moment with and without a fraction": (
        ask(since="2026-01-01T12:00:00Z"),
        ask(since="2026-01-01T12:00:00.000000Z"),
    ),
    "no time and an empty one": (ask(), ask(since="")),
    "the layout of a query": (sandboxed(ALL), sandboxed("select\n\t*  from numbers  ;")),
    "its comments": (sandboxed(ALL), sandboxed("-- chart\nselect /* all */ * from numbers # end")),
    "comments between its words and behind its end": (
        sandboxed(GROUPED),
        sandboxed(
            "SELECT project , COUNT( * ) AS n FROM numbers # a\nWHERE ratio>1 GROUP /* b */ BY project\n"
            "order -- c\nby n limit 5; -- d"
        ),
    ),
    "a query that says what the saved one does": (ask(), sandboxed(ALL)),
    "the case of its keywords": (sandboxed(ALL), sandboxed("SELECT * FROM NUMBERS")),
    "white space around LQL": (in_lql("s:project f:numbers"), in_lql("  s:project f:numbers \n")),
    "zeros at the end of an exact number": (ask(EXACT, bignumeric="100"), ask(EXACT, bignumeric="1.000e2")),
    "an exact nothing": (ask(EXACT, bignumeric="0"), ask(EXACT, bignumeric="-0.00")),
    "a pin and the same value asked for": (pinned_to("a"), ask(project="a")),
    "a pin left out or named": (pinned_to("a"), pinned_to("a", project="a")),
    "redaction by header or by key": (
        msgspec.structs.replace(ask(), redact=True),
        msgspec.structs.replace(ask(), caller=Caller("k", frozenset({"query"}), redact_always=True)),
    ),
    "redaction switched off where it is off": (ask(), msgspec.structs.replace(ask(), redact=False)),
    "asking for a fresh run": (ask(), msgspec.structs.replace(ask(), fresh=True)),
}

APART: dict[str, tuple[QueryRequest, QueryRequest]] = {
    "another value": (ask(project="a"), ask(project="b")),
    "values of two parameters exchanged": (ask(project="1", ratio="2"), ask(project="2", ratio="1")),
    "an empty text and none": (ask(project=""), ask()),
    "times a microsecond apart": (ask(since="2026-01-01T12:00:00Z"), ask(since="2026-01-01T12:00:00.000001Z")),
    "another endpoint": (ask(WARMED), ask(UNCACHED)),
    "another revision": (ask(), ask(msgspec.structs.replace(WARMED, revision="revision-2"))),
    "redacted and not": (ask(), msgspec.structs.replace(ask(), redact=True)),
    "redacted by the endpoint and switched off": (
        ask(msgspec.structs.replace(WARMED, redact_pii=True)),
        msgspec.structs.replace(ask(msgspec.structs.replace(WARMED, redact_pii=True)), redact=False),
    ),
    "redacted by the key and not": (
        ask(),
        msgspec.structs.replace(ask(), caller=Caller("k", frozenset({"query"}), redact_always=True), redact=False),
    ),
    "another format": (ask(), ask(WARMED, FORMATS["csv"])),
    "a query and the saved one": (ask(), sandboxed("select project from numbers")),
    "another query": (sandboxed(ALL), sandboxed("select ratio from numbers")),
    "white space inside a text": (
        sandboxed("select 'a b' as x from numbers"),
        sandboxed("select 'a  b' as x from numbers"),
    ),
    "what looks like a comment inside a text": (
        sandboxed("select '-- a' as x from numbers"),
        sandboxed("select '-- b' as x from numbers"),
    ),
    "a hash inside a text": (
        sandboxed('select "#a" as x from numbers'),
        sandboxed('select "#b" as x from numbers'),
    ),
    "a quote escaped inside a text": (
        sandboxed(r"select 'it\'s  -- a' as x from numbers"),
        sandboxed(r"select 'it\'s  -- b' as x from numbers"),
    ),
    "the case of a text": (sandboxed("select 'A' as x from numbers"), sandboxed("select 'a' as x from numbers")),
    "a comment that ends at a carriage return": (
        sandboxed("select sum(ratio) --\r+ 4711\n as n from numbers"),
        sandboxed("select sum(ratio) as n from numbers"),
    ),
    "a comment after a hash that ends at a carriage return": (
        sandboxed("select sum(ratio) #\r+ 4711\n as n from numbers"),
        sandboxed("select sum(ratio) as n from numbers"),
    ),
    "a comment within a comment": (
        sandboxed("select 1 /* /* */ + 4711 /* */ as n"),
        sandboxed("select 1 /* */ as n"),
    ),
    "what looks like a comment inside a text of three quotes": (
        sandboxed("select '''a'' -- a''' as x"),
        sandboxed("select '''a'' -- b''' as x"),
    ),
    "exact numbers that differ in the 30th digit": (
        ask(EXACT, bignumeric="1.00000000000000000000000000001"),
        ask(EXACT, bignumeric="1.00000000000000000000000000002"),
    ),
    "an exact number and one ten times as large": (ask(EXACT, numeric="1"), ask(EXACT, numeric="10")),
    "an exact number and its negative": (ask(EXACT, numeric="1"), ask(EXACT, numeric="-1")),
    "paths that were never seen, by what the receipt says of them": (
        ask(UNSEEN_PATH),
        ask(msgspec.structs.replace(UNSEEN_PATH, sql=UNSEEN_PATH.sql.replace("m.a", "m.b"))),
    ),
    "two pins": (pinned_to("a"), pinned_to("b")),
    "a pin and the default": (pinned_to("a"), ask()),
}


@pytest.mark.parametrize(("one", "other"), SHARED.values(), ids=SHARED.keys())
def test_differences_without_effect_are_not_in_the_key(one: QueryRequest, other: QueryRequest) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART.keys())
def test_differences_with_an_effect_are_in_the_key(one: QueryRequest, other: QueryRequest) -> None:
    assert key(one) != key(other)


def test_the_key_is_an_untruncated_digest() -> None:
    assert len(key(ask())) == 32


def test_the_time_of_the_call_is_not_in_the_key() -> None:
    endpoint = msgspec.structs.replace(WARMED, sql="select current_timestamp() as now", parameters=(), revision="clock")
    assert key(ask(endpoint)) == key(ask(endpoint))


def test_every_field_of_a_statement_is_in_its_digest() -> None:
    statement = Statement(fixed_plan("select 1"), (), (), ())
    filled: dict[str, object] = {
        field.name: ("x",) if field.default == () or field.required else "x"
        for field in msgspec.structs.fields(Statement)
        # Lookups of shapes have their effect in the other fields; projects with equal statements share an answer.
        if field.name != "shape_lookups"
    }
    filled |= {"plan": fixed_plan("select 2"), "row_limit": 7}
    changed = [msgspec.structs.replace(statement, **{name: value}) for name, value in filled.items()]
    assert len({statement.digest, *(one.digest for one in changed)}) == len(filled) + 1


def test_every_part_of_a_plan_is_in_the_digest_of_its_statement() -> None:
    sql = ("select 1 from s where ",)
    variants = [
        (Variant(sql),),
        (Variant((*sql, BlockFilter("s", ("abcdef",)))),),
        (Variant((*sql, BlockFilter("s", ("abcdeg",)))),),
        (Variant((*sql, OptionalPredicate("p", ("a",), ("b",)))),),
        (Variant((*sql, OptionalPredicate("p", ("b",), ("a",)))),),
        (Variant(sql, EventRange.FLUSHED),),
        (Variant(sql, is_optimistic=True),),
        (Variant(sql), Variant(sql, EventRange.RECENT)),
    ]
    digests = {Statement(Plan(made), (), (), ()).digest for made in variants}
    assert len(digests) == len(variants)


def test_equal_statements_have_equal_digests() -> None:
    assert Statement(fixed_plan("select 1"), (), (), ()).digest == Statement(fixed_plan("select 1"), (), (), ()).digest
