"""Export of a stream: the stored events of a time range, streamed while the engine reads them."""

import time
from typing import Final

import msgspec

from cordwood.engines.engine import STORED, AnswerLimits, Engine
from cordwood.model.datatype import Kind
from cordwood.model.parameter import Parameter
from cordwood.serve.ask import Ask
from cordwood.serve.run import Job
from cordwood.sql.bind import bind
from cordwood.sql.plan import fixed_plan
from cordwood.sql.stages import Slot, Statement

# An upper bound only: an export whose client disconnects is cancelled.
_SECONDS: Final = 24 * 3600.0
_ALL_ROWS: Final = 2**62

_SLOTS: Final = (
    Slot("since", Parameter("since", Kind.INT64, required=True)),
    Slot("until", Parameter("until", Kind.INT64, required=True)),
    Slot("project", Parameter("project")),
)


class Range(msgspec.Struct, frozen=True):
    """The events of a stream from `since_us` (inclusive) to `until_us` (exclusive), optionally of one project."""

    stream: str
    since_us: int
    until_us: int
    project: str | None = None


def export_job(ask: Ask, wanted: Range, engine: Engine, asked_us: int) -> Job:
    began = time.monotonic()
    statement = Statement(
        plan=fixed_plan(engine.stored(wanted.stream)),
        slots=_SLOTS,
        sub_queries=(),
        streams=(wanted.stream,),
        column_names=tuple(column.name for column in STORED),
        column_types=tuple(column.datatype for column in STORED),
    )
    values = {"since": str(wanted.since_us), "until": str(wanted.until_us)}
    if wanted.project is not None:
        values["project"] = wanted.project
    question = bind(statement, values, asked_us, engine.is_regex)
    return Job(ask, question, AnswerLimits(_ALL_ROWS, _SECONDS), _ALL_ROWS, asked_us, time.monotonic() - began)
