"""The SQL of a plan's variants, for tests of the SQL that an engine runs."""

from cordwood.sql.plan import EventRange, print_segments
from cordwood.sql.stages import Statement


def sql_of(statement: Statement, reads: EventRange, *, optimistic: bool = False) -> str | None:
    """Return the SQL of a variant of the plan, with its optional predicates, or None if there is no such variant."""
    variant = statement.plan.find_variant(reads, optimistic=optimistic)
    return None if variant is None else print_segments(variant.segments)


def flushed_sql(statement: Statement) -> str | None:
    return sql_of(statement, EventRange.FLUSHED)


def optimistic_sql(statement: Statement) -> str | None:
    return sql_of(statement, EventRange.ALL, optimistic=True)
