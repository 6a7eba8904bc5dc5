"""TO_JSON and TO_JSON_STRING: every type as BigQuery writes it, built from the type."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.time_text import time_text
from cordwood.engines.duckdb.rules.words import once
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.constants import constant
from cordwood.sql.fragment import OPEN_BRACE, fragment
from cordwood.sql.lowering import Meaning, unsupported
from cordwood.sql.typing import datatype_of

_FLOAT: Final = (
    "CASE WHEN isnan({0}) THEN '\"NaN\"' WHEN isinf({0}) THEN CASE WHEN {0} > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    " WHEN {0} = 0 THEN '0' WHEN CAST(printf('%.15g', {0}) AS DOUBLE) = {0} THEN printf('%.15g', {0}) ELSE printf('%.17g', {0}) END"
)
_WIDE_INT: Final = (
    "CASE WHEN abs({0}::HUGEINT) > 9007199254740992 THEN '\"' || {0}::VARCHAR || '\"' ELSE {0}::VARCHAR END"
)

_SCALARS: Final = {
    Kind.STRING: "to_json({0})::VARCHAR",
    Kind.INT64: _WIDE_INT,
    Kind.FLOAT64: _FLOAT,
    Kind.BOOL: "{0}::VARCHAR",
    Kind.BYTES: "'\"' || to_base64({0}) || '\"'",
    Kind.DATE: "'\"' || {0}::VARCHAR || '\"'",
    Kind.JSON: "{0}::VARCHAR",
    Kind.VARIANT: "{0}::JSON::VARCHAR",
    Kind.NUMERIC: r"regexp_replace({0}::VARCHAR, '\.?0+$', '')",
    Kind.BIGNUMERIC: r"regexp_replace({0}::VARCHAR, '\.?0+$', '')",
}

# The engine indents by four, BigQuery by two.
_PRETTY: Final = (
    "array_to_string(list_transform(string_split(json_pretty({0}::JSON), chr(10)),"
    " lambda _l: repeat(' ', (len(_l) - len(ltrim(_l, ' '))) // 2) || ltrim(_l, ' ')), chr(10))"
)


def json_text(node: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """VARCHAR of JSON, never NULL: a missing value is `null`."""
    if isinstance(node, exp.Null):
        return fragment("'null'")
    return fragment("coalesce({0}, 'null')", _written(node, datatype, depth=0))


def _written(node: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None:
        return fragment("to_json({0})::VARCHAR", node)
    if datatype.kind is Kind.ARRAY:
        return _array(node, datatype, depth)
    if datatype.kind is Kind.STRUCT:
        return _object(node, datatype, depth)
    if datatype.kind is Kind.INTERVAL:
        unsupported(node, "An INTERVAL as JSON")
    if datatype.kind in (Kind.TIMESTAMP, Kind.DATETIME, Kind.TIME):
        return fragment("'\"' || {0} || '\"'", time_text(node, datatype.kind))
    template = _SCALARS.get(datatype.kind, "to_json({0}::VARCHAR)::VARCHAR")
    return once(template.replace("{0}", "@a"), node)


def _array(node: exp.Expr, datatype: Datatype, depth: int) -> exp.Expr:
    """A missing array is the empty one, where it is the whole value."""
    name = f"_j{depth}"
    inner = fragment("coalesce({0}, 'null')", _written(fragment(name), datatype.element, depth + 1))
    listed = fragment(f"list_transform({{0}}, lambda {name}: {{1}})", node, inner)
    if depth == 0:
        return fragment("'[' || coalesce(array_to_string({0}, ','), '') || ']'", listed)
    return once("CASE WHEN @a IS NOT NULL THEN '[' || coalesce(array_to_string(@a, ','), '') || ']' END", listed)


def _object(node: exp.Expr, datatype: Datatype, depth: int) -> exp.Expr:
    """A field stands under its own name, also where two fields share it."""
    name = f"_s{depth}"
    parts: list[exp.Expr] = []
    pieces: list[str] = []
    for at, (label, field) in enumerate(datatype.fields):
        value = fragment(f"struct_extract_at({name}, {at + 1})")
        parts.append(fragment("coalesce({0}, 'null')", _written(value, field, depth + 1)))
        key = exp.Literal.string(f'"{label or f"_field_{at + 1}"}":')
        parts.append(key)
        pieces.append(f"{{{len(parts)}}} || {{{len(parts) - 1}}}")
    body = " || ',' || ".join(pieces)
    opened = f"'{OPEN_BRACE}' || {body} || '}}'" if pieces else f"'{OPEN_BRACE}}}'"
    template = f"list_transform([{{0}}], lambda {name}: CASE WHEN {name} IS NULL THEN NULL ELSE {opened} END)[1]"
    return fragment(template, node, *parts)


def as_json(value: exp.Expr) -> exp.Expr:
    """A value as JSON; wide numbers stay numbers."""
    datatype = datatype_of(value)
    if datatype is not None and datatype.kind is Kind.INT64:
        return fragment("coalesce(to_json({0}), 'null'::JSON)", value)
    return fragment("{0}::JSON", json_text(value, datatype))


def pretty(written: exp.Expr) -> exp.Expr:
    """JSON text with its parts on lines of their own."""
    return fragment(_PRETTY, written)


def _to_json(node: exp.Expr) -> exp.Expr:
    written = json_text(node.this, datatype_of(node.this))
    if node.args.get("to_json"):
        return as_json(node.this)
    options = node.args.get("options")
    if options is not None and constant(options) is True:
        return pretty(written)
    if options is not None and constant(options) is None:
        unsupported(node, "TO_JSON_STRING with a pretty_print that is no literal")
    return written


MEANING = Meaning(nodes={exp.JSONFormat: _to_json})
