"""What is measured: one question a line, as a caller asks it over HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass

from bench.events import PROJECTS

_PROJECT = PROJECTS[3]


@dataclass(frozen=True)
class Question:
    """`gates` says that being slower than before by more than the margin fails the bench."""

    name: str
    endpoint: str
    parameters: Mapping[str, str]
    gates: bool = True


def _logs(**more: str) -> dict[str, str]:
    return {"project": _PROJECT, **more}


QUESTIONS = (
    Question("counts by day, project by regex", "usage.api-counts", {"interval": "daily", "project": _PROJECT}),
    Question("counts of the last hour", "usage.api-counts", {"interval": "minutely", "project": _PROJECT}),
    Question("newest 100 whole events", "logs.all", _logs()),
    Question("newest 100 failures, SQL", "logs.all", _logs(sql=(
        "select id, timestamp, event_message from edge_logs cross join unnest(metadata) as m"
        " cross join unnest(m.response) as r where r.status_code >= 500 order by timestamp desc limit 100"
    ))),
    Question("newest 100 failures, LQL", "logs.all", _logs(lql="f:edge_logs m.response.status_code:>=500 limit:100")),
    Question("countries of a project", "logs.all", _logs(lql="f:edge_logs c:count(*) c:group_by(m.request.cf.country)")),
    Question("regex on the message", "logs.all", _logs(lql=r"f:edge_logs ~GET.*50[34] limit:100"), gates=False),
    Question("failures by the hour, filled", "logs.all", _logs(
        lql="f:edge_logs m.response.status_code:>=500 t:last@7d c:count(*) c:group_by(t::hour)"
    )),
)  # fmt: skip
