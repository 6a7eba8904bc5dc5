"""Queries that were killed are quarantined.

For their own key, this applies with any literals; for other keys, only with the same literals.
"""

from uuid import UUID

import msgspec
import pytest

from cordwood.engines.engine import AnswerLimits
from cordwood.errors import QuarantinedQuery
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.key import Caller
from cordwood.observe.observation import Observer, QuarantinedQueryRefused, QueryQuarantined
from cordwood.serve.jobs import QueryJob
from cordwood.serve.query_executor import QUERY_QUARANTINE_SECONDS, QueryQuarantine, sql_fingerprint
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import BoundStatement, ParameterSlot, Statement
from cordwood.web.encode import JSON_FORMAT

ENDPOINT = Endpoint("e", UUID(int=1), "select 1", "r1")


class ManualClock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_job(sql: str, *, account: str = "k", is_ad_hoc: bool = True) -> QueryJob:
    text = SandboxQuery(QueryLanguage.SQL, sql) if is_ad_hoc else None
    ask = QueryRequest(ENDPOINT, Caller(account, frozenset({"query"})), JSON_FORMAT, sandbox=text)
    return QueryJob(
        ask, BoundStatement(Statement(plan_without_placeholders(sql), (), (), ())), AnswerLimits(10, 1.0), 100, 0, 0.0
    )


class NoteList:
    def __init__(self) -> None:
        self.items: list[object] = []

    def record(self, observation: object) -> None:
        self.items.append(observation)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("SELECT a FROM s WHERE b = 'it''s' AND c > 7.5e3", True),
        ("SELECT a FROM s WHERE b = '' AND c > 0", True),
        ("SELECT a FROM s WHERE d = 'x' AND c > 1", False),
        ("SELECT a FROM \"s\" WHERE b = 'x' AND c > 1", False),
    ],
)
def test_queries_that_differ_only_in_literals_have_one_fingerprint(other: str, same: bool) -> None:  # noqa: FBT001
    assert (sql_fingerprint(other) == sql_fingerprint("SELECT a FROM s WHERE b = 'x' AND c > 1")) is same


def test_the_length_of_a_list_of_literals_is_not_in_the_fingerprint() -> None:
    assert sql_fingerprint("SELECT a FROM s WHERE b IN (1, 2, 3)") == sql_fingerprint("SELECT a FROM s WHERE b IN (4)")


def test_a_killed_query_is_refused_to_all_keys_for_ten_minutes() -> None:
    clock, notes = ManualClock(), NoteList()
    quarantine = QueryQuarantine(Observer((notes,)), clock)
    quarantine.require_not_quarantined(make_job("SELECT 1"))
    quarantine.record_engine_kill(make_job("SELECT 1"))
    clock.now += 100
    with pytest.raises(QuarantinedQuery, match="last ran") as refused:
        quarantine.require_not_quarantined(make_job("SELECT 1", account="another"))
    assert refused.value.retry_after == QUERY_QUARANTINE_SECONDS - 100
    quarantine.require_not_quarantined(make_job("SELECT a FROM s"))
    assert quarantine.quarantined_query_count() == 1
    clock.now += QUERY_QUARANTINE_SECONDS
    quarantine.require_not_quarantined(make_job("SELECT 1"))
    assert quarantine.quarantined_query_count() == 0
    first, second = notes.items
    assert isinstance(first, QueryQuarantined)
    assert isinstance(second, QuarantinedQueryRefused)


def test_other_literals_are_refused_only_to_the_key_of_the_killed_query() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    quarantine.record_engine_kill(make_job("SELECT a FROM s WHERE b = 'slow'"))
    with pytest.raises(QuarantinedQuery):
        quarantine.require_not_quarantined(make_job("SELECT a FROM s WHERE b = 'quick'"))
    quarantine.require_not_quarantined(make_job("SELECT a FROM s WHERE b = 'quick'", account="another"))


def test_other_values_of_parameters_are_not_refused_to_other_keys() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    slots = (ParameterSlot("project", Parameter("project")),)
    of_a, of_b = (
        msgspec.structs.replace(
            make_job("SELECT a FROM s WHERE p = $project", account=project),
            bound_statement=BoundStatement(
                Statement(plan_without_placeholders("SELECT a FROM s WHERE p = $project"), slots, (), ()),
                {"project": project},
            ),
        )
        for project in "ab"
    )
    quarantine.record_engine_kill(of_a)
    quarantine.require_not_quarantined(of_b)
    with pytest.raises(QuarantinedQuery):
        quarantine.require_not_quarantined(of_a)


def test_a_key_with_two_killed_queries_may_only_run_saved_queries() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    quarantine.record_engine_kill(make_job("SELECT a FROM s"))
    quarantine.record_engine_kill(make_job("SELECT b FROM s"))
    with pytest.raises(QuarantinedQuery, match="this key's own"):
        quarantine.require_not_quarantined(make_job("SELECT c FROM s"))
    quarantine.require_not_quarantined(make_job("SELECT c FROM s", account="another"))
    quarantine.require_not_quarantined(make_job("SELECT a FROM s", is_ad_hoc=False))


def test_saved_queries_that_were_killed_are_not_refused() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    quarantine.record_engine_kill(make_job("SELECT a FROM s", is_ad_hoc=False))
    quarantine.require_not_quarantined(make_job("SELECT a FROM s"))
    assert quarantine.quarantined_query_count() == 0


def test_a_query_that_ran_beside_others_when_the_process_was_killed_is_refused_from_the_second_time_on() -> None:
    clock = ManualClock()
    quarantine = QueryQuarantine(Observer(), clock)
    quarantine.record_possible_engine_kill(make_job("SELECT a FROM s WHERE b = 1"))
    quarantine.require_not_quarantined(make_job("SELECT a FROM s WHERE b = 1"))
    clock.now += QUERY_QUARANTINE_SECONDS + 1
    quarantine.record_possible_engine_kill(make_job("SELECT a FROM s WHERE b = 1"))
    quarantine.require_not_quarantined(make_job("SELECT a FROM s WHERE b = 1"))
    quarantine.record_possible_engine_kill(make_job("SELECT a FROM s WHERE b = 2"))
    with pytest.raises(QuarantinedQuery, match="last ran"):
        quarantine.require_not_quarantined(make_job("SELECT a FROM s WHERE b = 1"))


def test_a_key_is_refused_after_four_different_suspected_queries() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    for column in "abc":
        quarantine.record_possible_engine_kill(make_job(f"SELECT {column} FROM s"))
    quarantine.require_not_quarantined(make_job("SELECT e FROM s"))
    quarantine.record_possible_engine_kill(make_job("SELECT d FROM s"))
    with pytest.raises(QuarantinedQuery, match="this key's own"):
        quarantine.require_not_quarantined(make_job("SELECT e FROM s"))
    quarantine.require_not_quarantined(make_job("SELECT e FROM s", account="another"))


def test_saved_queries_are_not_suspected() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    for _ in range(2):
        quarantine.record_possible_engine_kill(make_job("SELECT a FROM s", is_ad_hoc=False))
    quarantine.require_not_quarantined(make_job("SELECT a FROM s"))


def test_the_number_of_quarantined_queries_is_bounded() -> None:
    quarantine = QueryQuarantine(Observer(), ManualClock())
    for number in range(5_000):
        quarantine.record_engine_kill(make_job(f"SELECT c{number} FROM s", account=f"k{number}"))
    assert quarantine.quarantined_query_count() == 2_000
    quarantine.require_not_quarantined(make_job("SELECT c0 FROM s", account="k0"))
