"""Refusals of LogQL: unsupported parts and errors have a position, and the cost of hostile queries is limited."""

import time

import pytest

from cordwood.errors import (
    BadParameter,
    BadQuerySyntax,
    BadQueryValue,
    Fault,
    LimitFault,
    PlanTooLarge,
    QueryFault,
    QueryUnsupported,
)
from cordwood.logql.lexer import MAX_QUERY_CHARACTERS
from cordwood.logql.parse import parse_logql
from cordwood.logql.syntax import MAX_SAMPLE_STEPS
from tests.machine_speed import scaled
from tests.unit.logql.conftest import LogqlEngine
from tests.unit.logql.entries import END_US, MINUTE_US, SECOND_US, START_US

# Refused queries, each with its fault and the column of the error.
REFUSED_QUERIES = [
    ("", BadQuerySyntax, 1),
    ("{", BadQuerySyntax, 2),
    ('{job="a"', BadQuerySyntax, 9),
    ("{job='a'}", BadQuerySyntax, 6),
    ('{job="a}', BadQuerySyntax, 6),
    ('{job>"a"}', BadQuerySyntax, 5),
    ('{job="\\q"}', BadQuerySyntax, 7),
    ('{job="a"} error', BadQuerySyntax, 11),
    ('{job="a"} |= error', BadQuerySyntax, 14),
    ('{job="a"} | job >', BadQuerySyntax, 18),
    ('{job="a"} | job > "1"', BadQuerySyntax, 19),
    ('{job="a"} | job =~ 5', BadQuerySyntax, 20),
    ('{job="a"} | job > 5x', BadQuerySyntax, 19),
    ('{job="a"} | nonsense', BadQuerySyntax, 13),
    ('{job="a"} | json x="a..b"', BadQuerySyntax, 20),
    ('{job="a"} | unwrap job', BadQuerySyntax, 20),
    ('count_over_time({job="a"})', BadQuerySyntax, 26),
    ('count_over_time({job="a"}[5])', BadQuerySyntax, 27),
    ('count_over_time({job="a"}[5m]', BadQuerySyntax, 30),
    ('count_over_time({job="a"}[5m][5m])', BadQuerySyntax, 30),
    ('sum_over_time({job="a"}[5m])', BadQuerySyntax, 1),
    ('count_over_time({job="a"} | unwrap x [5m])', BadQuerySyntax, 36),
    ('sum_over_time({job="a"} | unwrap nope(x) [5m])', BadQuerySyntax, 34),
    ('count_over_time({job="a"}[5m]) by (job)', BadQuerySyntax, 32),
    ('quantile_over_time(2, {job="a"} | unwrap x [5m])', BadQuerySyntax, 20),
    ('topk(0, count_over_time({job="a"}[5m]))', BadQuerySyntax, 6),
    ('topk(1.5, count_over_time({job="a"}[5m]))', BadQuerySyntax, 6),
    ('median(count_over_time({job="a"}[5m]))', BadQuerySyntax, 1),
    ('sum({job="a"})', BadQuerySyntax, 5),
    ('{job="a"} + 1', BadQuerySyntax, 11),
    ('{job="a"} | line_format "{{.x | upper}}"', QueryUnsupported, 25),
    ('{job="a"} | line_format x', BadQuerySyntax, 25),
    ('{job="a"} | line_format "{{.x}} {{.y"', BadQuerySyntax, 25),
    ('{job="a"} | label_format x=y', QueryUnsupported, 13),
    ('{job="a"} | regexp "(?P<x>.)"', QueryUnsupported, 13),
    ('{job="a"} | pattern "<x>"', QueryUnsupported, 13),
    ('{job="a"} | unpack', QueryUnsupported, 13),
    ('{job="a"} | decolorize', QueryUnsupported, 13),
    ('{job="a"} |> "<_> x"', QueryUnsupported, 11),
    ('{job="a"} != ip("10.0.0.0/8")', QueryUnsupported, 14),
    ('{job="a"} | addr = ip("10.0.0.0/8")', QueryUnsupported, 20),
    ('{job="a"} | logfmt --strict', QueryUnsupported, 20),
    ('{job="a"} | drop x="y"', QueryUnsupported, 19),
    ('absent_over_time({job="a"}[5m]) by (job)', BadQuerySyntax, 33),
    ('approx_topk(5, rate({job="a"}[5m]))', QueryUnsupported, 1),
    ('rate_counter({job="a"} | unwrap x [5m])', QueryUnsupported, 1),
    ('label_replace(rate({job="a"}[5m]), "a", "b", "c", "d")', QueryUnsupported, 1),
    ('sort(rate({job="a"}[5m])) by (job)', BadQuerySyntax, 27),
    ('sum(rate({job="a"}[5m])) or sum(rate({job="b"}[5m]))', QueryUnsupported, 26),
    ('sum(rate({job="a"}[5m])) and vector(1)', QueryUnsupported, 26),
    ('rate({job="a"}[5m]) / on (job) rate({job="a"}[5m])', QueryUnsupported, 23),
]


@pytest.mark.parametrize(("query", "kind", "column"), REFUSED_QUERIES)
def test_errors_of_the_parser_have_a_position(query: str, kind: type[Fault], column: int) -> None:
    with pytest.raises(QueryFault) as refused:
        parse_logql(query)
    assert type(refused.value) is kind
    assert refused.value.span is not None
    assert (refused.value.span.line, refused.value.span.column) == (1, column), refused.value.one_line_text()


@pytest.mark.parametrize(
    ("query", "kind", "place"),
    [
        ('{job=~"["}', BadQueryValue, (1, 7)),
        ('{job="mysql"}\n|~ "("', BadQueryValue, (2, 4)),
        ('{job="mysql"} | json | x !~ "*"', BadQueryValue, (1, 29)),
        ('{job="mysql"} | __error__!=""', QueryUnsupported, (1, 17)),
        ('{job="mysql"} | line_format "x" |= "x"', QueryUnsupported, (1, 33)),
        ('{job="mysql"} | line_format "x" | json', QueryUnsupported, (1, 35)),
        ('{job="mysql"} | json | path_extracted="x"', QueryUnsupported, (1, 24)),
    ],
)
def test_errors_of_the_engine_and_of_the_compiler_have_a_position(
    logql: LogqlEngine, query: str, kind: type[Fault], place: tuple[int, int]
) -> None:
    with pytest.raises(kind) as refused:
        logql.lines(query)
    assert refused.value.span is not None
    assert (refused.value.span.line, refused.value.span.column) == place


def test_bytes_functions_after_line_format_and_the_operator_or_between_vectors_are_refused(logql: LogqlEngine) -> None:
    with pytest.raises(QueryUnsupported, match="line_format"):
        logql.samples('bytes_over_time({job="mysql"} | line_format "x" [5m])')
    with pytest.raises(QueryUnsupported, match="or between two vectors"):
        logql.samples('sum(rate({job="mysql"}[5m])) or vector(0) + sum(rate({job="mysql"}[5m]))')


def test_vectors_of_different_labels_are_not_joined(logql: LogqlEngine) -> None:
    with pytest.raises(QueryUnsupported, match="different labels"):
        logql.samples('sum by (job) (rate({job="mysql"}[5m])) / sum(rate({job="mysql"}[5m]))')


HOSTILE_QUERIES = [
    "(" * 10_000,
    "sum(" * 5_000,
    "-" * 16_000,
    "{" + ",".join(f'a{n}="b"' for n in range(1500)) + "}",
    '{a="b"}' + ' |= "x"' * 2000,
    '{a="b"} | ' + "(" * 5000,
    '{a="b"} | x=1' + " or x=1" * 2000,
    '{a="b"} |= ' + " or ".join(['"x"'] * 3000),
    " + ".join(["1"] * 7000),
    "^".join(["2"] * 7000),
    "sum by (" + ",".join(f"a{n}" for n in range(3000)) + ') (rate({a="b"}[5m]))',
    '{a="b"} | json ' + ", ".join(f'a{n}="b"' for n in range(1500)),
    '{a="b"} | line_format "' + "{{.x}}" * 2000 + '"',
    '{a="b"} | line_format "' + "{{" * 7900 + '"',
    '{a="b"} | json x="' + "a." * 4000 + 'b"',
    "9" * 10_000,
    "9" * 28 + "h" + "9" * 5000 + "m",
    "`" * 16_001,
    '"' + "\\" * 15_999,
    "#" * 16_000,
    "x" * (MAX_QUERY_CHARACTERS + 1),
    'rate({a="b"}[' + "1h" * 5000 + "])",
]


@pytest.mark.parametrize("query", HOSTILE_QUERIES, ids=range(len(HOSTILE_QUERIES)))
def test_a_hostile_text_is_refused_within_half_a_second(query: str) -> None:
    started = time.thread_time()
    with pytest.raises(QueryFault):
        parse_logql(query)
    assert time.thread_time() - started < scaled(0.5)


def test_long_or_ambiguous_labels_have_bounded_cost(logql: LogqlEngine) -> None:
    name = "a_" * 99 + "b"
    assert logql.lines(f'{{source_name="app_logs"}} | json | {name}="x"') == []
    deep = "sum by (a) (" * 10 + 'rate({source_name=~".+"}[1m])' + ")" * 10
    assert list(logql.samples(deep)) == []
    filters = " or ".join(f'a_b_c_{number}="x"' for number in range(80))
    with pytest.raises(PlanTooLarge):
        logql.lines(f'{{source_name=~".+"}} | json | logfmt | json | logfmt | {filters}')


def test_repeated_operations_are_limited_by_the_size_of_the_plan(logql: LogqlEngine) -> None:
    counted = 'sum(count_over_time({source_name="edge_logs"}[1m]))'
    started = time.thread_time()
    for text in (counted + " or vector(0)" * 40, " + ".join([counted] * 18), counted + " * 2" * 80):
        try:
            logql.samples(text)
        except (QueryFault, LimitFault) as fault:
            assert fault.code.startswith("limit.")
    assert time.thread_time() - started < scaled(10)


def test_the_number_of_steps_and_their_overlap_are_limited(logql: LogqlEngine) -> None:
    counted = 'sum(count_over_time({source_name="edge_logs"}[%s]))'
    with pytest.raises(BadParameter, match="11,000 steps"):
        logql.samples(counted % "1s", START_US, START_US + MAX_SAMPLE_STEPS * SECOND_US, SECOND_US)
    assert logql.samples(counted % "1s", START_US, START_US + (MAX_SAMPLE_STEPS - 1) * SECOND_US, SECOND_US)
    with pytest.raises(QueryUnsupported, match="times the step"):
        logql.samples(counted % "1d", START_US, END_US, SECOND_US)
    averaged = 'avg_over_time({source_name="edge_logs"} | unwrap status [2h]) by ()'
    with pytest.raises(QueryUnsupported, match="times the step"):
        logql.samples(averaged, START_US, END_US, MINUTE_US)
    assert logql.samples(averaged, START_US, END_US, 2 * MINUTE_US)
