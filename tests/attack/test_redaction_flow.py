"""Two services that differ only in private values give the same answers to redacted queries, and do the same work.

Answers must be equal byte for byte, with status, headers and cache state. The engine's work is compared by the
statement, the plan, the rows of each operator, and the number of redactions.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice

import pytest
from sqlglot import exp

from cordwood.errors import QueryFault
from cordwood.serve import paging
from cordwood.sql.parse import parse_sql
from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS, PERMITTED_NODES
from tests.attack.redaction_grammar import AGGREGATES, FUNCTIONS_NOT_GENERATED, NODES_NOT_GENERATED, SCALARS, WINDOWS
from tests.attack.redaction_questions import RandomQuestion, random_questions
from tests.attack.statement_work import work_of_statement
from tests.attack.twins import FIRST_SECRETS, SECOND_SECRETS, EngineRecord, Twin, open_twin, store_events
from tests.chdb_databases import fresh_database

Twins = tuple[Twin, Twin]

QUESTION_SEED = int(os.environ.get("SEED", "29"))
IS_FULL = os.environ.get("TORTURE") == "full"
QUESTION_COUNT = 2500 if IS_FULL else 60

_REQUEST = "logs l cross join unnest(l.metadata) m cross join unnest(m.request) r"

# Queries whose answers or work depended on private values in earlier versions.
EARLIER_LEAKS = [
    # These queries sort by the raw value, with an ordinal that is not spelt "1".
    *(
        f"select event_message, id from logs order by {place}{limit}"
        for place in ("(1)", "((1))", "01", "0x1", "0X01", "-(-1)", "- -1", "(1), (2)", "(1) desc", "true", "-2")
        for limit in ("", " limit 1")
    ),
    "select id from (select event_message, id from logs order by (1) limit 3)",
    "select id from (select who, id from logs order by 0x1 limit 1 offset 4)",
    "with t as (select event_message as e, id from logs order by -(-1) limit 2) select id from t",
    "from logs |> select event_message, id |> order by (1) |> limit 2",
    "from logs |> select who, id |> order by 01 desc |> limit 1 |> select id",
    "select id from (select event_message, id from logs order by (1) limit 2) union all select id from again where false",
    "select count(*) from logs where id in (select id from (select who, id from logs order by (1) limit 1))",
    # These queries have a join in parentheses that compares raw values.
    "select a.id from (logs a join again b on a.event_message = b.event_message) order by a.id",
    "select count(*) from (logs a join again b on a.event_message < b.event_message)",
    "select count(*) from logs a join (again b join again c on b.who > c.who) on a.id = b.id",
    # These queries have a pipe operator that groups by raw values.
    "from logs |> aggregate count(*) as n group by who",
    "from logs l |> extend 1 as c |> aggregate count(*) as n group by event_message |> order by n",
    f"from {_REQUEST} cross join unnest(r.list) x |> extend 1 as c |> aggregate count(*) as n group by x",
    # These queries read a value that is private because of its field name under another alias.
    f"select l.id, coalesce(r.nothing, r.password) as a from {_REQUEST} order by l.id",
    f"select l.id, coalesce(r.lacking, r.password) as a from {_REQUEST} order by l.id",
    f"select count(*) from {_REQUEST} where coalesce(r.lacking, r.password) = 'x'",
    # These queries read an array element at an index that is computed from a raw value.
    f"select l.id, r.texts[safe_offset(length(r.password) - 1)] as a from {_REQUEST} order by l.id",
    f"select count(r.texts[safe_offset(length(r.password) - 1)]) as a from {_REQUEST}",
    # These queries read strings of an array that are private because of its field name.
    f"select l.id, r.api_key as a from {_REQUEST} order by l.id",
    f"select l.id, 'x' in unnest(r.api_key) as a from {_REQUEST} order by l.id",
    # These queries have a correlated sub-query that the engine computes once for each distinct raw value.
    "select id, (select count(*) from again q where q.id < l.event_message) as n from logs l order by id",
    "select l.id from again l where (select count(*) from again q where q.event_message = l.event_message) > 1 limit 3",
    "select l.id, (select max(q.id) from again q where q.who = l.who and l.id is not null) as a from again l limit 3",
    "select l.id, (select count(*) from flat q where q.ip = l.who) as n from logs l limit 3",
    # This query counts the elements of an object whose key is private.
    f"select count(*) from {_REQUEST} cross join unnest(r.`10.9.9.9`) x",
]

# Queries that count or list the rows that contain part of a private value.
COUNTING_QUERIES = [
    "select count(*) n from logs where event_message like '%203.0.113.7%'",
    "select count(*) n from logs where event_message = 'nothing here'",
    "select count(*) n from logs where who in ('203.0.113.7', '9.9.9.9')",
    "select count(*) n from logs where regexp_contains(event_message, '203')",
    f"select count(*) n from {_REQUEST} where r.ip like '2%'",
    f"select count(*) n from {_REQUEST} where r.password = 'x' or r.card like '4111%'",
    "select id, event_message from logs where event_message like '%example.org%' order by id",
]


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    with ExitStack() as stack:
        # With the default limit, a busy machine could stop an ordered run of only one twin.
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(paging, "_MIN_ORDERED_RUN_TIMEOUT_SECONDS", 60.0)
        opened = []
        for secrets in (FIRST_SECRETS, SECOND_SECRETS):
            engine = "duckdb" if request.param == "duckdb" else fresh_database()
            twin = stack.enter_context(open_twin(tmp_path_factory.mktemp("twin"), engine, secrets))
            store_events(twin)
            opened.append(twin)
        yield opened[0], opened[1]


def compare(twins: Twins, question: RandomQuestion, *, with_work: bool = True) -> tuple[int, str]:
    """Run a query twice on both services, the second time from the cache.

    Return the status, and a description of the first difference between the services, or "" if there is none.
    """
    for _ in range(2):
        answer, other_answer = (twin.ask(question.text, language=question.language) for twin in twins)
        if answer != other_answer:
            return answer.status, f"answered: {answer} and {other_answer}"
    first_answer, second_answer = (take_record(twin) for twin in twins)
    if first_answer != second_answer:
        return answer.status, f"the engines were asked: {first_answer} and {second_answer}"
    works_of_twins = [
        [work_of_statement(twin, question_asked) for twin in twins]
        for question_asked in first_answer.questions
        if with_work and answer.status == 200
    ]
    return answer.status, next(
        (f"worked: {first} and {second}" for first, second in works_of_twins if first != second), ""
    )


def take_record(twin: Twin) -> EngineRecord:
    """Return the questions and redactions that were recorded since the last call, and clear the record."""
    record = EngineRecord(list(twin.record.questions), list(twin.record.redacted_counts))
    twin.record.questions.clear()
    twin.record.redacted_counts.clear()
    return record


@pytest.mark.parametrize("sql", EARLIER_LEAKS)
def test_earlier_leaks_are_closed(twins: Twins, sql: str) -> None:
    assert compare(twins, RandomQuestion(sql)) == (200, "")


@pytest.mark.parametrize("sql", COUNTING_QUERIES)
def test_the_work_of_a_search_does_not_reveal_whether_a_private_value_exists(twins: Twins, sql: str) -> None:
    assert compare(twins, RandomQuestion(sql)) == (200, "")


@pytest.mark.torture
def test_random_queries_do_not_distinguish_private_values(twins: Twins) -> None:
    answered = 0
    for number, question in enumerate(islice(random_questions(QUESTION_SEED), QUESTION_COUNT)):
        status, difference = compare(twins, question, with_work=IS_FULL or number % 2 == 0)
        assert difference == "", f"query {number} of seed {QUESTION_SEED}: {question.text}"
        answered += status == 200
    assert answered >= QUESTION_COUNT * 0.6, f"{answered} of {QUESTION_COUNT} were answered: too few to show anything"


def test_every_permitted_function_is_used() -> None:
    templates = " ".join(
        template for kinds in (SCALARS, AGGREGATES, WINDOWS) for some in kinds.values() for template in some
    )
    used_functions = {name.upper() for name in re.findall(r"(?:\bnet\.)?\b[a-z]\w*(?=\()", templates)}
    assert PERMITTED_FUNCTIONS - used_functions == FUNCTIONS_NOT_GENERATED.keys()


def test_every_permitted_node_is_used() -> None:
    node_types = {type(node).__name__ for tree in parsed_questions(1500) for node in tree.walk()}
    assert PERMITTED_NODES - node_types == NODES_NOT_GENERATED.keys()


def parsed_questions(count: int) -> Iterator[exp.Expr]:
    for question in islice(random_questions(29), count):
        if question.language == "sql":
            with suppress(QueryFault):
                yield parse_sql(question.text).tree
