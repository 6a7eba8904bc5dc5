"""Nothing that redaction hides flows into what is answered: two services that differ in private values alone answer alike.

To the byte, with status, headers and cache outcome, whether it is rows or a refusal; and the engine does the same for
it: the same statement, plan, rows at every step, texts that are redacted.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice

import pytest
from sqlglot import exp

from cordwood.errors import QueryFault
from cordwood.sql.parse import parse
from cordwood.sql.permitted import FUNCTIONS, NODES
from tests.attack.redaction_grammar import AGGREGATES, FUNCTIONS_ELSEWHERE, NODES_ELSEWHERE, SCALARS, WINDOWS
from tests.attack.redaction_questions import Question, questions
from tests.attack.redaction_work import work
from tests.attack.twins import ONE, OTHER, Noted, Twin, fill, opened_twin
from tests.chdb_databases import fresh_database

Twins = tuple[Twin, Twin]

SEED = int(os.environ.get("SEED", "29"))
IS_FULL = os.environ.get("TORTURE") == "full"
MANY = 2500 if IS_FULL else 200

_REQUEST = "logs l cross join unnest(l.metadata) m cross join unnest(m.request) r"

# Each told one value from another before it was found.
FOUND = [
    # Sorted by the raw value, by a place that was spelt otherwise than "1".
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
    # Compared by the raw value in a join in brackets.
    "select a.id from (logs a join again b on a.event_message = b.event_message) order by a.id",
    "select count(*) from (logs a join again b on a.event_message < b.event_message)",
    "select count(*) from logs a join (again b join again c on b.who > c.who) on a.id = b.id",
    # Grouped by the raw value by a step of a pipe.
    "from logs |> aggregate count(*) as n group by who",
    "from logs l |> extend 1 as c |> aggregate count(*) as n group by event_message |> order by n",
    f"from {_REQUEST} cross join unnest(r.list) x |> extend 1 as c |> aggregate count(*) as n group by x",
    # A secret by its name, called by another's.
    f"select l.id, coalesce(r.nothing, r.password) as a from {_REQUEST} order by l.id",
    f"select l.id, coalesce(r.lacking, r.password) as a from {_REQUEST} order by l.id",
    f"select count(*) from {_REQUEST} where coalesce(r.lacking, r.password) = 'x'",
    # An element at a place that a raw value says.
    f"select l.id, r.texts[safe_offset(length(r.password) - 1)] as a from {_REQUEST} order by l.id",
    f"select count(r.texts[safe_offset(length(r.password) - 1)]) as a from {_REQUEST}",
    # Texts of an array whose name says that they are secrets.
    f"select l.id, r.api_key as a from {_REQUEST} order by l.id",
    f"select l.id, 'x' in unnest(r.api_key) as a from {_REQUEST} order by l.id",
    # Worked out once for each raw value that a sub-query reads of the rows around it, and joined by it.
    "select id, (select count(*) from again q where q.id < l.event_message) as n from logs l order by id",
    "select l.id from again l where (select count(*) from again q where q.event_message = l.event_message) > 1 limit 3",
    "select l.id, (select max(q.id) from again q where q.who = l.who and l.id is not null) as a from again l limit 3",
    "select l.id, (select count(*) from flat q where q.ip = l.who) as n from logs l limit 3",
    # Rows made of a key whose name is hidden.
    f"select count(*) from {_REQUEST} cross join unnest(r.`10.9.9.9`) x",
]

# A text is looked for, and how often is what must not show.
SOUGHT = [
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
        made = []
        for secrets in (ONE, OTHER):
            engine = "duckdb" if request.param == "duckdb" else fresh_database()
            twin = stack.enter_context(opened_twin(tmp_path_factory.mktemp("twin"), engine, secrets))
            fill(twin)
            made.append(twin)
        yield made[0], made[1]


def told_apart(twins: Twins, question: Question, *, is_worked_out: bool = True) -> tuple[int, str]:
    """The status of the answer, and what differs between the two, if anything does. The second answer is a kept one."""
    for _ in range(2):
        answer, others = (twin.ask(question.text, language=question.language) for twin in twins)
        if answer != others:
            return answer.status, f"answered: {answer} and {others}"
    one, other = (taken(twin) for twin in twins)
    if one != other:
        return answer.status, f"the engines were asked: {one} and {other}"
    works = [[work(twin, asked) for twin in twins] for asked in one.questions if is_worked_out and answer.status == 200]
    return answer.status, next((f"worked: {first} and {second}" for first, second in works if first != second), "")


def taken(twin: Twin) -> Noted:
    """What was noted since it was last taken."""
    noted = Noted(list(twin.noted.questions), list(twin.noted.redacted))
    twin.noted.questions.clear()
    twin.noted.redacted.clear()
    return noted


@pytest.mark.parametrize("sql", FOUND)
def test_what_was_found_tells_nothing_any_more(twins: Twins, sql: str) -> None:
    assert told_apart(twins, Question(sql)) == (200, "")


@pytest.mark.parametrize("sql", SOUGHT)
def test_to_look_for_a_piece_of_a_private_text_is_the_same_work_whether_it_is_there(twins: Twins, sql: str) -> None:
    assert told_apart(twins, Question(sql)) == (200, "")


@pytest.mark.torture
def test_queries_made_by_rule_tell_nothing(twins: Twins) -> None:
    answered = 0
    for number, question in enumerate(islice(questions(SEED), MANY)):
        status, difference = told_apart(twins, question, is_worked_out=IS_FULL or number % 4 == 0)
        assert difference == "", f"query {number} of seed {SEED}: {question.text}"
        answered += status == 200
    assert answered >= MANY * 0.6, f"{answered} of {MANY} were answered: too few to show anything"


def test_every_function_is_asked_of_private_values() -> None:
    templates = " ".join(
        template for kinds in (SCALARS, AGGREGATES, WINDOWS) for some in kinds.values() for template in some
    )
    called = {name.upper() for name in re.findall(r"(?:\bnet\.)?\b[a-z]\w*(?=\()", templates)}
    assert FUNCTIONS - called == FUNCTIONS_ELSEWHERE.keys()


def test_every_part_of_the_grammar_is_in_some_query() -> None:
    made = {type(node).__name__ for tree in trees(1500) for node in tree.walk()}
    assert NODES - made == NODES_ELSEWHERE.keys()


def trees(count: int) -> Iterator[exp.Expr]:
    for question in islice(questions(29), count):
        if question.language == "sql":
            with suppress(QueryFault):
                yield parse(question.text).tree
