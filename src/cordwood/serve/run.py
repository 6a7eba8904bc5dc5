"""Jobs for the engine, and the receipts of their answers."""

import msgspec

from cordwood.engines.engine import AnswerLimits, Asked, Cancel, Engine, Made, Run
from cordwood.serve.ask import Ask
from cordwood.serve.finished import Finished, Receipt
from cordwood.sql.stages import Question, Statement


class Job(msgspec.Struct, frozen=True):
    """A question with the limits of its run. `asked_us` is the time of the request.

    `answer_bytes` bounds an answer that is held in memory.
    """

    ask: Ask
    question: Question
    limits: AnswerLimits
    answer_bytes: int
    asked_us: int
    compile_seconds: float


def start(job: Job, engine: Engine, cancel: Cancel) -> Run:
    """Start a run whose pieces are delivered as they are made, so that it buffers few bytes."""
    return engine.run(Asked(job.question, job.limits, job.ask.format.encode), cancel)


def finish(job: Job, engine: Engine, cancel: Cancel) -> Finished:
    """Run the job and return the whole answer."""
    run = engine.run(Asked(job.question, job.limits, job.ask.format.encode, job.answer_bytes), cancel)
    body = b"".join(run.pieces())
    return Finished(body, receipt(job, run.made()))


def receipt(job: Job, made: Made) -> Receipt:
    """Return the receipt of a job's answer."""
    return Receipt(
        rows=made.rows,
        truncated=f"max_rows={job.limits.max_rows}" if made.truncated else None,
        notices=_notices(job.question.statement),
        revision=job.ask.endpoint.revision,
        made_us=job.asked_us,
        compile_seconds=round(job.compile_seconds, 6),
        engine_seconds=round(made.engine_seconds, 6),
    )


def _notices(statement: Statement) -> tuple[str, ...]:
    return (*(f"path never seen: {path}" for path in statement.unseen_paths), *statement.notices)
