"""TO_JSON and TO_JSON_STRING: every type as BigQuery writes it, built from the type."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.time_text import SUBSECOND, written
from cordwood.engines.clickhouse.rules.words import cast, once, quoted
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.constants import constant
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, unsupported
from cordwood.sql.typing import datatype_of, kind_of, typed_as

_SHORT: Final = (
    "replaceRegexpOne(replaceRegexpOne(toString(@a), 'e(\\\\d)', 'e+\\\\1'), 'e([+-])(\\\\d)$', 'e\\\\10\\\\2')"
)
_FLOAT: Final = (
    f"multiIf(isNaN(@a), '\"NaN\"', isInfinite(@a), if(@a > 0, '\"Infinity\"', '\"-Infinity\"'), @a = 0, '0',"
    f" abs(@a) >= 1e15, {_SHORT}, {_SHORT})"
)
_SCALARS: Final = {
    Kind.STRING: "toJSONString(@a)",
    Kind.INT64: "toString(@a)",
    Kind.FLOAT64: _FLOAT,
    Kind.BOOL: "if(@a, 'true', 'false')",
    Kind.BYTES: "concat('\"', base64Encode(@a), '\"')",
    Kind.DATE: "concat('\"', toString(@a), '\"')",
    Kind.JSON: "@a",
    Kind.VARIANT: "@a",
    Kind.NUMERIC: "toString(@a)",
    Kind.BIGNUMERIC: "toString(@a)",
}
_TIMES: Final = {Kind.TIMESTAMP: "%FT%T", Kind.DATETIME: "%FT%T", Kind.TIME: "%T"}


def json_text(node: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """JSON as text, never NULL: a missing value is `null`."""
    if isinstance(node, exp.Null):
        return fragment("'null'")
    return fragment("ifNull({0}, 'null')", _written(node, datatype, depth=0))


def _written(node: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None:
        return fragment("toJSONString({0})", node)
    if datatype.kind is Kind.ARRAY:
        return _array(node, datatype, depth)
    if datatype.kind is Kind.STRUCT:
        return _object(node, datatype, depth)
    if datatype.kind is Kind.INTERVAL:
        unsupported(node, "An INTERVAL as JSON")
    if datatype.kind in _TIMES:
        known = node if datatype_of(node) else typed_as(node, datatype)
        whole = written(known, datatype.kind, _TIMES[datatype.kind], None)
        end = "Z" if datatype.kind is Kind.TIMESTAMP else ""
        return fragment(
            f"concat('\"', {{0}}, {{1}}, '{end}\"')", whole, once(SUBSECOND, cast(node.copy(), Kind.DATETIME))
        )
    return once(_SCALARS.get(datatype.kind, "toJSONString(toString(@a))"), node)


def _array(node: exp.Expr, datatype: Datatype, depth: int) -> exp.Expr:
    name = f"_j{depth}"
    inner = fragment("ifNull({0}, 'null')", _written(fragment(name), datatype.element, depth + 1))
    template = f"concat('[', arrayStringConcat(arrayMap({name} -> assumeNotNull({{1}}), {{0}}), ','), ']')"
    return fragment(template, node, inner)


def _object(node: exp.Expr, datatype: Datatype, depth: int) -> exp.Expr:
    """A field stands under its own name, also where two fields share it."""
    name = f"_s{depth}"
    parts: list[exp.Expr] = []
    pieces: list[str] = []
    for at, (label, field) in enumerate(datatype.fields):
        value = fragment("ifNull({0}, 'null')", _written(fragment(f"tupleElement({name}, {at + 1})"), field, depth + 1))
        parts.append(value)
        key = ("," if at else "{") + '"' + (label or f"_field_{at + 1}") + '":'
        pieces.append(f"{quoted(key)}, {{{at + 1}}}")
    if not pieces:
        return fragment(quoted("{}"))
    body = f"concat({', '.join(pieces)}, {quoted('}')})"
    template = f"arrayMap({name} -> if(isNull({name}), NULL, {body}), [{{0}}])[1]"
    return fragment(template, node, *parts)


# A number that JavaScript cannot hold is a text.
_WIDE: Final = "if(abs(toInt128(@a)) > 9007199254740992, concat('\"', toString(@a), '\"'), toString(@a))"


def _to_json(node: exp.Expr) -> exp.Expr:
    made = json_text(node.this, datatype_of(node.this))
    if node.args.get("to_json"):
        return made
    if kind_of(node.this) is Kind.INT64:
        made = fragment("ifNull({0}, 'null')", once(_WIDE, node.this))
    options = node.args.get("options")
    if options is not None and constant(options) is not False:
        unsupported(node, "TO_JSON_STRING with pretty_print")
    return made


MEANING = Meaning(nodes={exp.JSONFormat: _to_json})
