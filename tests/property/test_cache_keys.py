"""Only equal statements share a cached answer, whatever comments and white space the queries contain."""

import asyncio
import json
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cordwood.engines.duckdb.duckdb_engine import DuckDBEngine
from cordwood.engines.duckdb.target import DuckDBTarget
from cordwood.errors import QueryFault
from cordwood.observe.observation import Observer
from cordwood.serve.admission import ServeLimits
from cordwood.serve.answer import CacheOutcome, QueryService, QueryServiceDependencies
from cordwood.serve.cached_answers import MemoryAnswerCache
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.sql.compile import compile_sandbox_query, parse_and_check_endpoint
from cordwood.sql.stages import Statement
from cordwood.web.encode import JSON_FORMAT
from tests.fakes.catalogs import MemoryCatalog
from tests.unit.serve.harness import CALLER, WARMED_ENDPOINT, complete_answer

ENDPOINT = msgspec.structs.replace(
    WARMED_ENDPOINT,
    sql="with t as (select 1 as a, 2 as b, 'x' as c) select a, b, c from t",
    revision="rows",
    parameters=(),
    warm_seconds=None,
)
PROGRAM = parse_and_check_endpoint(ENDPOINT)
LATER_SECONDS = 901

# Line ends that a parser may recognise: CR, LF, both, vertical tab, form feed, file separators, NEL, LS, PS.
LINE_ENDS = ("\n", "\r", "\r\n", "\n\r", "\v", "\f", "\x1c", "\x1e", "\x85", "\u2028", "\u2029")
SPACES = (" ", "\t", "\u00a0", "\u2003", "\u3000", "\ufeff", "\u200b", "\x00", "")
COMMENT_TOKENS = (
    "--",
    "#",
    "/*",
    "*/",
    "/**/",
    "/* /* */",
    "*/ */",
    "//",
    "\\",
    "\\\n",
    ";",
    "'",
    '"',
    "`",
    "'''",
    '"""',
    "r'",
    "b'",
    "{{",
    "}}",
)
WORDS = (
    "+ 4711",
    "- 1",
    "a",
    "b",
    "c",
    "1",
    "'x'",
    "'--'",
    '"#"',
    "`a`",
    "'\\''",
    "r'\\'",
    "'''x''y'''",
    ",",
    "(",
    ")",
    "*",
    "@p",
    "as n",
)
WORDS_BEFORE, WORDS_AFTER = ("select", "a"), ("as n", "from", "t")

random_tokens = st.lists(st.sampled_from([*LINE_ENDS, *SPACES, *COMMENT_TOKENS, *WORDS]), max_size=4).map("".join)
comment_texts = st.one_of(
    st.tuples(st.sampled_from(["--", "#"]), random_tokens, st.sampled_from(LINE_ENDS)).map("".join),
    random_tokens.map(lambda text: f"/*{text}*/"),
)
blank_texts = st.sampled_from([" ", "\n", "\t", "\r\n"])
separators = st.one_of(
    blank_texts, blank_texts, comment_texts.map(lambda text: f" {text} "), comment_texts, random_tokens
)


@st.composite
def query_texts(draw: st.DrawFn) -> str:
    """Draw a small query with random tokens at two places between its words. Many of these queries compile."""
    words = [*WORDS_BEFORE, *draw(st.sampled_from([(), (), ("+ 4711",), ("- 1",), (", b",)])), *WORDS_AFTER]
    between = [draw(blank_texts) for _ in words]
    for _ in range(2):
        between[draw(st.integers(0, len(words) - 1))] = draw(separators)
    return "".join(word + gap for word, gap in zip(words, between, strict=True))


@st.composite
def query_pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a pair of queries, which are either independent or differ at one place."""
    text = draw(query_texts())
    if draw(st.booleans()):
        return text, draw(query_texts())
    place = draw(st.integers(0, len(text)))
    return text, text[:place] + draw(separators) + text[place:]


def compile_text(text: str) -> Statement | None:
    try:
        return compile_sandbox_query(PROGRAM, text, DuckDBTarget(), {})
    except QueryFault:
        return None


@given(query_pairs())
@example(("select sum(a) --\r+ 4711\n as n from t", "select sum(a) as n from t"))
@example(("select sum(a) #\r+ 4711\n as n from t", "select sum(a) as n from t"))
@example(("select a -- \u2028 + 4711\n as n from t", "select a as n from t"))
@example(("select`` a as n from t", "select a as n from t"))
@settings(max_examples=400, suppress_health_check=list(HealthCheck))
def test_digests_are_equal_if_and_only_if_the_statements_are_equal(pair: tuple[str, str]) -> None:
    first, second = map(compile_text, pair)
    if first is not None and second is not None:
        assert (first.digest == second.digest) == (first == second)


class CachedService:
    """A query service with a cache, which a request can bypass."""

    def __init__(self, engine: DuckDBEngine, runner: asyncio.Runner) -> None:
        self._runner = runner
        self.now_us = 1_700_000_000_000_000
        parts = QueryServiceDependencies(MemoryCatalog(ENDPOINT), engine, MemoryAnswerCache(10_000_000), Observer([]))
        self.answers = QueryService(parts, ServeLimits(), lambda: self.now_us)

    def ask(self, text: str, *, fresh: bool = False) -> tuple[CacheOutcome | None, str]:
        request = QueryRequest(
            ENDPOINT, CALLER, JSON_FORMAT, {}, SandboxQuery(QueryLanguage.SQL, text), bypasses_cache=fresh
        )
        try:
            answer = self._runner.run(self.answers.answer(request))
        except QueryFault as fault:
            return None, fault.code
        return answer.cache_outcome, complete_answer(answer).body.decode()


@pytest.fixture(scope="module")
def cached_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CachedService]:
    engine = DuckDBEngine(tmp_path_factory.mktemp("answers"), DuckDBTarget())
    with asyncio.Runner() as runner:
        cached_service = CachedService(engine, runner)
        yield cached_service
        runner.run(cached_service.answers.close())
    engine.close()


@given(pair=query_pairs())
@example(pair=("select sum(a) --\r+ 4711\n as n from t", "select sum(a) as n from t"))
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_a_cached_answer_equals_a_fresh_one(cached_service: CachedService, pair: tuple[str, str]) -> None:
    cached_service.now_us += LATER_SECONDS * 1_000_000
    for text in pair:
        cached = cached_service.ask(text)[1]
        assert cached == cached_service.ask(text, fresh=True)[1]


@pytest.mark.parametrize(
    "gap", ["\n", "\t", " /* x */ ", " -- x\n", " # x\n", "\r\n", " --\r\n", "\n\n\n", " /* -- */ "]
)
def test_queries_that_differ_in_layout_and_comments_share_an_answer(cached_service: CachedService, gap: str) -> None:
    cached_service.now_us += LATER_SECONDS * 1_000_000
    assert cached_service.ask("select a + 1 as n from t")[0] is CacheOutcome.MISS
    outcome, body = cached_service.ask(gap.join(("select", "a", "+", "1", "as n from t")))
    assert (outcome, json.loads(body)) == (CacheOutcome.HIT, {"result": [{"n": 2}]})
