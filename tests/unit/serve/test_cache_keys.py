"""Cache keys: two requests have the same key if and only if their differences cannot change the answer."""

import asyncio

import msgspec
import pytest

from cordwood.access import apply_pinned_parameters
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter
from cordwood.model.key import Caller
from cordwood.serve.cached_answers import cache_key
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.sql.plan import BlockFilter, EventRange, OptionalPredicate, Plan, PlanVariant, plan_without_placeholders
from cordwood.sql.stages import Statement
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME, JSON_FORMAT
from tests.unit.serve.harness import CALLER, UNCACHED_ENDPOINT, WARMED_ENDPOINT, ServeHarness, make_request

ALL_ROWS_SQL = "select * from numbers"
ENDPOINT_OF_UNLISTED_PATH = msgspec.structs.replace(
    WARMED_ENDPOINT,
    sql="select m.a as x from `s` as t cross join unnest(t.metadata) as m",
    revision="unseen",
    parameters=(),
)


ENDPOINT_WITH_NUMERIC_PARAMETERS = msgspec.structs.replace(
    WARMED_ENDPOINT,
    sql="select @numeric as n, @bignumeric as b",
    revision="exact",
    parameters=(Parameter("numeric", Kind.NUMERIC), Parameter("bignumeric", Kind.BIGNUMERIC)),
)


def sandbox_request(text: str, **parameters: str) -> QueryRequest:
    return QueryRequest(WARMED_ENDPOINT, CALLER, JSON_FORMAT, parameters, SandboxQuery(QueryLanguage.SQL, text))


GROUPED_SQL = "select project, count(*) as n from numbers where ratio > 1 group by project order by n limit 5"


def lql_request(text: str) -> QueryRequest:
    return QueryRequest(WARMED_ENDPOINT, CALLER, JSON_FORMAT, {}, SandboxQuery(QueryLanguage.LQL, text))


def pinned_request(pin: str, **parameters: str) -> QueryRequest:
    caller = Caller("key-2", frozenset({"query"}), {"project": pin})
    return msgspec.structs.replace(
        make_request(), caller=caller, parameters=apply_pinned_parameters(caller, parameters, WARMED_ENDPOINT)
    )


def key_of_request(request: QueryRequest) -> bytes:
    async def found() -> bytes:
        harness = ServeHarness()
        job = await harness.answers._create_job(request)
        await harness.answers.close()
        return cache_key(request, job.bound_statement)

    return asyncio.run(found())


REQUESTS_WITH_ONE_KEY: dict[str, tuple[QueryRequest, QueryRequest]] = {
    "another key": (
        make_request(project="a"),
        msgspec.structs.replace(make_request(project="a"), caller=Caller("other", frozenset({"query"}))),
    ),
    "an unknown parameter": (make_request(project="a"), make_request(project="a", ref="x", project_tier="")),
    "the key as a parameter": (make_request(project="a"), make_request(project="a", api_key="secret")),
    "the order of parameters": (make_request(project="a", ratio="1"), make_request(ratio="1", project="a")),
    "a default filled in": (make_request(), make_request(project="default")),
    "1 and 1.0": (make_request(ratio="1"), make_request(ratio="1.0")),
    "1e0 and 1": (make_request(ratio="1e0"), make_request(ratio="1")),
    "one moment in two zones": (
        make_request(since="2026-01-01T12:00:00Z"),
        make_request(since="2026-01-01T14:00:00+02:00"),
    ),
    "one moment with and without a fraction": (
        make_request(since="2026-01-01T12:00:00Z"),
        make_request(since="2026-01-01T12:00:00.000000Z"),
    ),
    "no time and an empty one": (make_request(), make_request(since="")),
    "the layout of a query": (sandbox_request(ALL_ROWS_SQL), sandbox_request("select\n\t*  from numbers  ;")),
    "its comments": (sandbox_request(ALL_ROWS_SQL), sandbox_request("-- chart\nselect /* all */ * from numbers # end")),
    "comments between its words and behind its end": (
        sandbox_request(GROUPED_SQL),
        sandbox_request(
            "SELECT project , COUNT( * ) AS n FROM numbers # a\nWHERE ratio>1 GROUP /* b */ BY project\n"
            "order -- c\nby n limit 5; -- d"
        ),
    ),
    "a query that says what the saved one does": (make_request(), sandbox_request(ALL_ROWS_SQL)),
    "the case of its keywords": (sandbox_request(ALL_ROWS_SQL), sandbox_request("SELECT * FROM NUMBERS")),
    "white space around LQL": (lql_request("s:project f:numbers"), lql_request("  s:project f:numbers \n")),
    "zeros at the end of an exact number": (
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, bignumeric="100"),
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, bignumeric="1.000e2"),
    ),
    "an exact nothing": (
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, bignumeric="0"),
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, bignumeric="-0.00"),
    ),
    "a pin and the same value asked for": (pinned_request("a"), make_request(project="a")),
    "a pin left out or named": (pinned_request("a"), pinned_request("a", project="a")),
    "redaction by header or by key": (
        msgspec.structs.replace(make_request(), is_redaction_requested=True),
        msgspec.structs.replace(make_request(), caller=Caller("k", frozenset({"query"}), redact_always=True)),
    ),
    "redaction switched off where it is off": (
        make_request(),
        msgspec.structs.replace(make_request(), is_redaction_requested=False),
    ),
    "asking for a fresh run": (make_request(), msgspec.structs.replace(make_request(), bypasses_cache=True)),
}

REQUESTS_WITH_TWO_KEYS: dict[str, tuple[QueryRequest, QueryRequest]] = {
    "another value": (make_request(project="a"), make_request(project="b")),
    "values of two parameters exchanged": (make_request(project="1", ratio="2"), make_request(project="2", ratio="1")),
    "an empty text and none": (make_request(project=""), make_request()),
    "times a microsecond apart": (
        make_request(since="2026-01-01T12:00:00Z"),
        make_request(since="2026-01-01T12:00:00.000001Z"),
    ),
    "another endpoint": (make_request(WARMED_ENDPOINT), make_request(UNCACHED_ENDPOINT)),
    "another revision": (make_request(), make_request(msgspec.structs.replace(WARMED_ENDPOINT, revision="revision-2"))),
    "redacted and not": (make_request(), msgspec.structs.replace(make_request(), is_redaction_requested=True)),
    "redacted by the endpoint and switched off": (
        make_request(msgspec.structs.replace(WARMED_ENDPOINT, redact_pii=True)),
        msgspec.structs.replace(
            make_request(msgspec.structs.replace(WARMED_ENDPOINT, redact_pii=True)), is_redaction_requested=False
        ),
    ),
    "redacted by the key and not": (
        make_request(),
        msgspec.structs.replace(
            make_request(), caller=Caller("k", frozenset({"query"}), redact_always=True), is_redaction_requested=False
        ),
    ),
    "another format": (make_request(), make_request(WARMED_ENDPOINT, ANSWER_FORMATS_BY_NAME["csv"])),
    "a query and the saved one": (make_request(), sandbox_request("select project from numbers")),
    "another query": (sandbox_request(ALL_ROWS_SQL), sandbox_request("select ratio from numbers")),
    "white space inside a text": (
        sandbox_request("select 'a b' as x from numbers"),
        sandbox_request("select 'a  b' as x from numbers"),
    ),
    "what looks like a comment inside a text": (
        sandbox_request("select '-- a' as x from numbers"),
        sandbox_request("select '-- b' as x from numbers"),
    ),
    "a hash inside a text": (
        sandbox_request('select "#a" as x from numbers'),
        sandbox_request('select "#b" as x from numbers'),
    ),
    "a quote escaped inside a text": (
        sandbox_request(r"select 'it\'s  -- a' as x from numbers"),
        sandbox_request(r"select 'it\'s  -- b' as x from numbers"),
    ),
    "the case of a text": (
        sandbox_request("select 'A' as x from numbers"),
        sandbox_request("select 'a' as x from numbers"),
    ),
    "a comment that ends at a carriage return": (
        sandbox_request("select sum(ratio) --\r+ 4711\n as n from numbers"),
        sandbox_request("select sum(ratio) as n from numbers"),
    ),
    "a comment after a hash that ends at a carriage return": (
        sandbox_request("select sum(ratio) #\r+ 4711\n as n from numbers"),
        sandbox_request("select sum(ratio) as n from numbers"),
    ),
    "a comment within a comment": (
        sandbox_request("select 1 /* /* */ + 4711 /* */ as n"),
        sandbox_request("select 1 /* */ as n"),
    ),
    "what looks like a comment inside a text of three quotes": (
        sandbox_request("select '''a'' -- a''' as x"),
        sandbox_request("select '''a'' -- b''' as x"),
    ),
    "exact numbers that differ in the 30th digit": (
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, bignumeric="1.00000000000000000000000000001"),
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, bignumeric="1.00000000000000000000000000002"),
    ),
    "an exact number and one ten times as large": (
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, numeric="1"),
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, numeric="10"),
    ),
    "an exact number and its negative": (
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, numeric="1"),
        make_request(ENDPOINT_WITH_NUMERIC_PARAMETERS, numeric="-1"),
    ),
    "paths that were never seen, by what the receipt says of them": (
        make_request(ENDPOINT_OF_UNLISTED_PATH),
        make_request(
            msgspec.structs.replace(ENDPOINT_OF_UNLISTED_PATH, sql=ENDPOINT_OF_UNLISTED_PATH.sql.replace("m.a", "m.b"))
        ),
    ),
    "two pins": (pinned_request("a"), pinned_request("b")),
    "a pin and the default": (pinned_request("a"), make_request()),
}


@pytest.mark.parametrize(("first", "second"), REQUESTS_WITH_ONE_KEY.values(), ids=REQUESTS_WITH_ONE_KEY.keys())
def test_differences_without_effect_are_not_in_the_key(first: QueryRequest, second: QueryRequest) -> None:
    assert key_of_request(first) == key_of_request(second)


@pytest.mark.parametrize(("first", "second"), REQUESTS_WITH_TWO_KEYS.values(), ids=REQUESTS_WITH_TWO_KEYS.keys())
def test_differences_with_an_effect_are_in_the_key(first: QueryRequest, second: QueryRequest) -> None:
    assert key_of_request(first) != key_of_request(second)


def test_the_key_is_an_untruncated_digest() -> None:
    assert len(key_of_request(make_request())) == 32


def test_the_time_of_the_call_is_not_in_the_key() -> None:
    endpoint = msgspec.structs.replace(
        WARMED_ENDPOINT, sql="select current_timestamp() as now", parameters=(), revision="clock"
    )
    assert key_of_request(make_request(endpoint)) == key_of_request(make_request(endpoint))


def test_every_field_of_a_statement_is_in_its_digest() -> None:
    statement = Statement(plan_without_placeholders("select 1"), (), (), ())
    filled: dict[str, object] = {
        field.name: ("x",) if field.default == () or field.required else "x"
        for field in msgspec.structs.fields(Statement)
        # `shape_lookups` is not in the digest, because its effects are in the other fields. Projects with equal
        # statements share an answer.
        if field.name != "shape_lookups"
    }
    filled |= {"plan": plan_without_placeholders("select 2"), "row_limit": 7}
    changed = [msgspec.structs.replace(statement, **{name: value}) for name, value in filled.items()]
    assert len({statement.digest, *(variant.digest for variant in changed)}) == len(filled) + 1


def test_every_part_of_a_plan_is_in_the_digest_of_its_statement() -> None:
    sql = ("select 1 from s where ",)
    variants = [
        (PlanVariant(sql),),
        (PlanVariant((*sql, BlockFilter("s", ("abcdef",)))),),
        (PlanVariant((*sql, BlockFilter("s", ("abcdeg",)))),),
        (PlanVariant((*sql, OptionalPredicate("p", ("a",), ("b",)))),),
        (PlanVariant((*sql, OptionalPredicate("p", ("b",), ("a",)))),),
        (PlanVariant(sql, EventRange.FLUSHED),),
        (PlanVariant(sql, has_optimistic_redaction=True),),
        (PlanVariant(sql), PlanVariant(sql, EventRange.RECENTLY_CACHED)),
    ]
    digests = {Statement(Plan(plan_variants), (), (), ()).digest for plan_variants in variants}
    assert len(digests) == len(variants)


def test_equal_statements_have_equal_digests() -> None:
    assert (
        Statement(plan_without_placeholders("select 1"), (), (), ()).digest
        == Statement(plan_without_placeholders("select 1"), (), (), ()).digest
    )
