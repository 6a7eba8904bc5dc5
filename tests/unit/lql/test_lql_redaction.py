"""LQL with redaction: filters, patterns and aggregations read only redacted values."""

import pytest

from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.unit.lql.conftest import LqlEngine

REDACTION = RedactionPolicy(RedactMode.REPLACE)


def test_an_address_is_redacted_in_message_and_metadata(lql_engine: LqlEngine) -> None:
    assert lql_engine.lql("id:7 s:event_message s:m.ip") == [("seen 10.0.0.1 here", "10.0.0.1")]
    assert lql_engine.lql("id:7 s:event_message s:m.ip", REDACTION) == [("seen REDACTED here", "REDACTED")]


@pytest.mark.parametrize(
    "probe",
    [
        "10.0.0.1",
        "m.ip:10.0.0.1",
        "~10[.]0",
        "m.ip:~^10",
        'm.ip:>"1" m.ip:<"2"',
        "m.hops:@>10.0.0.2",
        "m.calls.at:10.0.0.3",
    ],
)
def test_no_filter_matches_a_redacted_value(lql_engine: LqlEngine, probe: str) -> None:
    assert ("7",) in lql_engine.lql(f"s:id {probe}")
    assert lql_engine.lql(f"s:id {probe}", REDACTION) == []


def test_a_filter_of_array_elements_needs_no_selected_id_or_time(lql_engine: LqlEngine) -> None:
    assert lql_engine.lql("s:m.ip m.hops:@>10.0.0.2", REDACTION) == []
    assert lql_engine.lql("s:m.ip -m.hops:@>10.0.0.2 id:7", REDACTION) == [("REDACTED",)]


def test_a_dimension_is_redacted(lql_engine: LqlEngine) -> None:
    assert lql_engine.lql("id:7 c:count(*) c:group_by(m.ip)", REDACTION) == [("REDACTED", 1)]
