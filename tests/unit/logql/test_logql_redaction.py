"""LogQL with redaction: selectors, filters, groups and samples read only redacted values."""

import pytest

from cordwood.logql.syntax import LogqlRequest, ResultKind
from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.unit.logql.conftest import LogqlEngine
from tests.unit.logql.entries import END_US, MINUTE_US, START_US

REDACTION = RedactionPolicy(RedactMode.REPLACE)
PRIVATE_MAIL = "jane@example.com"


def answer(
    logql: LogqlEngine, result_kind: ResultKind, query: str, redaction: RedactionPolicy | None, label: str = ""
) -> str:
    return str(
        logql.rows(LogqlRequest(result_kind, (query,), START_US, END_US, MINUTE_US, requested_label=label), redaction)[
            1
        ]
    )


@pytest.mark.parametrize(
    ("result_kind", "query", "label"),
    [
        (ResultKind.ENTRIES, '{source_name=~".+"}', ""),
        (ResultKind.SAMPLES, 'sum by (user, mail_to) (count_over_time({source_name=~".+"}[10m]))', ""),
        (ResultKind.SAMPLES, 'sum by (mail) (count_over_time({source_name="app_logs"} | json [10m]))', ""),
        (ResultKind.SAMPLES, 'count_over_time({mail_to=~".+"}[10m])', ""),
        (ResultKind.LABEL_VALUES, "{}", "user"),
        (ResultKind.LABEL_VALUES, "{}", "mail_to"),
        (ResultKind.STREAMS, "{}", ""),
    ],
)
def test_private_values_are_redacted_in_all_kinds_of_answers(
    logql: LogqlEngine, result_kind: ResultKind, query: str, label: str
) -> None:
    assert PRIVATE_MAIL in answer(logql, result_kind, query, None, label)
    redacted = answer(logql, result_kind, query, REDACTION, label)
    assert "REDACTED" in redacted
    assert PRIVATE_MAIL not in redacted


@pytest.mark.parametrize(
    "query",
    [
        f'{{}} | user="{PRIVATE_MAIL}"',
        '{} | user=~"jane.*"',
        f'{{mail_to="{PRIVATE_MAIL}"}}',
        '{mail_to=~".*example.*"}',
        f'{{}} |= "{PRIVATE_MAIL}"',
        '{} |~ "jane@"',
        f'{{}} | json | mail="{PRIVATE_MAIL}"',
        '{} | ip=~"10[.].*"',
    ],
)
def test_no_filter_matches_a_redacted_value(logql: LogqlEngine, query: str) -> None:
    request = LogqlRequest(ResultKind.ENTRIES, (query,), START_US, END_US)
    assert logql.rows(request)[1]
    assert logql.rows(request, REDACTION)[1] == []
