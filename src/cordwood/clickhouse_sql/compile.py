"""The compiler of ClickHouse SQL over an endpoint's table of logs, and the description of that table.

The endpoint's sub-queries form the table `logs`, whose column `source` has their names. The query is translated to the
tree of the equivalent BigQuery SQL over these sub-queries. After the translation, it is resolved, redacted, limited and
run by the same code as a query in BigQuery SQL.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.parse import parse_clickhouse_sql, require_permitted_syntax
from cordwood.clickhouse_sql.scope import (
    LOG_ATTRIBUTES_COLUMN,
    LOGS_TABLE_NAME,
    ROWS_ALIAS,
    RowSource,
    StreamAttributes,
    SubQueryBranch,
)
from cordwood.clickhouse_sql.select import QueryTranslator
from cordwood.errors import BadQueryValue, CompilationTimeout, PlanTooLarge
from cordwood.model.datatype import Kind
from cordwood.model.event import ARRAY_ELEMENT_STEP, EventPath, EventShape, ValueKind
from cordwood.sql.budget import compilation_scope
from cordwood.sql.compile import compile_sandbox_tree
from cordwood.sql.internal_functions import INTERNAL_FUNCTION_NAMES
from cordwood.sql.program import EndpointProgram
from cordwood.sql.record_shapes import RecordingShapeReader
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.stages import ParsedQuery, Statement, Target
from cordwood.sql.sub_query_schema import SubQueryColumn, SubQuerySchema, ValueKindsByPath

ShapesByStream = Mapping[str, EventShape]
# If an endpoint has more sources than this, the error for a query that is too large gets a hint to read fewer sources.
_MAX_SOURCES_WITHOUT_FILTER_HINT = 20
# What to write instead of an operation that fails for some values.
CLICKHOUSE_VALUE_REMEDY: Final = (
    "toInt64OrZero, toFloat64OrNull and the like accept any text; nullIf(x, 0) as a divisor gives NULL."
)


def compile_clickhouse(
    program: EndpointProgram,
    text: str,
    target: Target,
    shapes: ShapesByStream,
    redaction: RedactionPolicy | None = None,
) -> Statement:
    """Compile a sandbox query in ClickHouse's dialect, which can only read the endpoint's sub-queries."""
    records = RecordingShapeReader(redaction.visible_shapes(shapes) if redaction else shapes)
    try:
        with compilation_scope():
            parsed = ParsedQuery(translate_to_bigquery(program, text, records), text)
            statement = compile_sandbox_tree(
                program, lambda: parsed, target, shapes, redaction, internal_functions=INTERNAL_FUNCTION_NAMES
            )
    except BadQueryValue as fault:
        raise fault.name_other_functions(CLICKHOUSE_VALUE_REMEDY) from fault
    except (PlanTooLarge, CompilationTimeout) as fault:
        if len(program.sub_query_sources) > _MAX_SOURCES_WITHOUT_FILTER_HINT:
            fault.hint = f"There are {len(program.sub_query_sources)} sources. Name those to read, as in WHERE source = 'edge_logs'."
        raise
    shape_lookups = {**records.shape_lookups, **statement.shape_lookups}
    return msgspec.structs.replace(statement, shape_lookups=shape_lookups)


def translate_to_bigquery(program: EndpointProgram, text: str, records: RecordingShapeReader) -> exp.Expr:
    """Translate a ClickHouse query to the tree of the equivalent BigQuery query over the endpoint's sub-queries."""

    def make_log_branches() -> list[RowSource]:
        return [
            SubQueryBranch(
                name,
                source.sub_query,
                StreamAttributes(source.stream, records, ROWS_ALIAS, source.has_top_level_project),
            )
            for name, source in program.sub_query_sources.items()
        ]

    parsed = require_permitted_syntax(parse_clickhouse_sql(text))
    page_rows = program.page.min_page_size(program.endpoint.max_rows)
    return QueryTranslator(text, make_log_branches, program.parameters, page_rows).translate_to_answer(parsed.tree)


_KIND_BY_COLUMN: Final = {
    "id": Kind.STRING,
    "timestamp": Kind.TIMESTAMP,
    "project": Kind.STRING,
    "source": Kind.STRING,
    "event_message": Kind.STRING,
    "severity_text": Kind.STRING,
}
_NON_ATTRIBUTE_PATHS: Final = frozenset({("id",), ("timestamp",), ("event_message",), ("metadata",)})


def describe_logs_table(program: EndpointProgram, shapes: Mapping[str, EventShape]) -> SubQuerySchema:
    """Return a description of the table `logs`, in which each key of `log_attributes` is a field of that column."""
    columns = [SubQueryColumn(name, kind, {}) for name, kind in _KIND_BY_COLUMN.items()]
    return SubQuerySchema(
        LOGS_TABLE_NAME,
        (*columns, SubQueryColumn(LOG_ATTRIBUTES_COLUMN, Kind.JSON, _kinds_by_attribute_key(program, shapes))),
    )


def _kinds_by_attribute_key(program: EndpointProgram, shapes: Mapping[str, EventShape]) -> ValueKindsByPath:
    keys: dict[EventPath, frozenset[ValueKind]] = {}
    for source in program.sub_query_sources.values():
        for path, kinds in shapes.get(source.stream, EventShape()).value_kinds_by_path.items():
            key_path = path[1:] if path[:1] == ("metadata",) else path
            is_leaf = bool(kinds - {ValueKind.OBJECT}) and ARRAY_ELEMENT_STEP not in path
            if key_path and is_leaf and path not in _NON_ATTRIBUTE_PATHS:
                keys[(".".join(key_path),)] = frozenset({ValueKind.TEXT})
    return dict(sorted(keys.items()))
