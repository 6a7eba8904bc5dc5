"""The compiler of ClickHouse SQL over an endpoint's table of logs.

The endpoint's sub-queries form the table `logs`, whose column `source` has their names. The query is translated to the
tree of the equivalent BigQuery SQL over these sub-queries; from there on, the same code resolves, redacts, limits and
runs it.
"""

from collections.abc import Mapping

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.admit import admit
from cordwood.clickhouse_sql.attributes import Attributes
from cordwood.clickhouse_sql.parse import parse
from cordwood.clickhouse_sql.scope import LOGS, Branch, SubQueryBranch
from cordwood.clickhouse_sql.select import QueryTranslator
from cordwood.errors import CompileTooLong, PlanTooLarge
from cordwood.model.shape import Shape
from cordwood.sql.budget import compiling
from cordwood.sql.compile import Program, compile_sandbox_tree
from cordwood.sql.record_shapes import RecordShapes
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.stages import Parsed, Statement
from cordwood.sql.target import Target
from cordwood.sql.typing.internal import INTERNAL

Shapes = Mapping[str, Shape]
# With so many, a query over all of them may be too large.
_MANY_SOURCES = 20


def compile_clickhouse(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """Compile a sandbox query in ClickHouse's dialect, which can only read the endpoint's sub-queries."""
    records = RecordShapes(redaction.visible_shapes(shapes) if redaction else shapes)
    try:
        with compiling():
            parsed = Parsed(translate(program, text, records), text)
            statement = compile_sandbox_tree(
                program, lambda: parsed, target, shapes, redaction, internal_functions=INTERNAL
            )
    except (PlanTooLarge, CompileTooLong) as fault:
        if len(program.sources) > _MANY_SOURCES:
            fault.hint = (
                f"There are {len(program.sources)} sources. Name those to read, as in WHERE source = 'edge_logs'."
            )
        raise
    shape_lookups = {**records.shape_lookups, **statement.shape_lookups}
    return msgspec.structs.replace(statement, shape_lookups=shape_lookups)


def translate(program: Program, text: str, records: RecordShapes) -> exp.Expr:
    """Return the equivalent tree over the endpoint's sub-queries."""

    def make_branches() -> list[Branch]:
        return [
            SubQueryBranch(name, source.sub_query, Attributes(source.stream, records, LOGS, source.has_own_project))
            for name, source in program.sources.items()
        ]

    parsed = admit(parse(text))
    page_rows = program.page.smallest(program.endpoint.max_rows)
    return (
        QueryTranslator(text, make_branches, program.parameters, page_rows)
        .translate(parsed.tree, is_outermost=True)
        .tree
    )
