"""The description of an endpoint in ClickHouse's dialect for authors of sandbox queries: the table `logs`."""

from collections.abc import Mapping
from typing import Final

from cordwood.clickhouse_sql.scope import LOGS
from cordwood.model.datatype import Kind
from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind
from cordwood.sql.program import Program
from cordwood.sql.sub_query_schema import Fields, SubQuery, SubQueryColumn

_COLUMNS: Final = {
    "id": Kind.STRING,
    "timestamp": Kind.TIMESTAMP,
    "project": Kind.STRING,
    "source": Kind.STRING,
    "event_message": Kind.STRING,
    "severity_text": Kind.STRING,
}
_ATTRIBUTES: Final = "log_attributes"
_NOT_ATTRIBUTES: Final = frozenset({("id",), ("timestamp",), ("event_message",), ("metadata",)})


def describe_logs_table(program: Program, shapes: Mapping[str, Shape]) -> SubQuery:
    """Return the table with its columns; the fields of `log_attributes` are its keys."""
    columns = [SubQueryColumn(name, kind, {}) for name, kind in _COLUMNS.items()]
    return SubQuery(LOGS, (*columns, SubQueryColumn(_ATTRIBUTES, Kind.JSON, _keys(program, shapes))))


def _keys(program: Program, shapes: Mapping[str, Shape]) -> Fields:
    keys: dict[Path, frozenset[ValueKind]] = {}
    for source in program.sources.values():
        for path, kinds in shapes.get(source.stream, Shape()).kinds.items():
            key_path = path[1:] if path[:1] == ("metadata",) else path
            is_leaf = bool(kinds - {ValueKind.OBJECT}) and ELEMENT not in path
            if key_path and is_leaf and path not in _NOT_ATTRIBUTES:
                keys[(".".join(key_path),)] = frozenset({ValueKind.TEXT})
    return dict(sorted(keys.items()))
