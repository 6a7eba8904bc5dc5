"""The attributes of an event: the text of one, and the map of all, flattened with dots."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once
from cordwood.engines.clickhouse.rules.coercions import attached_text, event_text
from cordwood.model.shape import ValueKind
from cordwood.sql.attribute_levels import MAX_CHARACTERS, MAX_KEY_BYTES, MAX_MEMBERS, expand_levels
from cordwood.sql.constants import constant_int
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet
from cordwood.sql.nodes import KINDS, internal_function

_COMPOSITE_KINDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})


def _attribute(node: exp.Expr) -> exp.Expr:
    """Return an attribute as text: an array as JSON, an object as NULL unless it is empty."""
    value = node.expressions[0]
    kinds = value.meta_get(KINDS)
    if attached_text(value) is not None or (kinds is not None and not kinds & _COMPOSITE_KINDS):
        return event_text(value)
    return _text_of(value, "if(@a = '{}', @a, NULL)")


def _scalar(node: exp.Expr) -> exp.Expr:
    return _text_of(node.expressions[0], "NULL")


def _text_of(value: exp.Expr, object_sql: str) -> exp.Expr:
    text = "JSONExtract(@a, 'Nullable(String)')"
    return once(f"multiIf(startsWith(@a, '['), @a, startsWith(@a, '{{'), {object_sql}, {text})", value)


def _flatten_level(entries: str) -> str:
    """Return the entries with each object replaced by its own entries."""
    children = "arrayMap(c -> tuple(concat(e.1, '.', c.1), c.2), JSONExtractKeysAndValuesRaw(e.2))"
    is_expanded = f"startsWith(e.2, '{{') AND e.2 != '{{}}' AND length(e.1) <= {MAX_KEY_BYTES}"
    return f"arrayFlatten(arrayMap(e -> if({is_expanded}, {children}, [e]), {entries}))"


# RE2's pattern of what precedes each member's value, in a literal of ClickHouse.
_MEMBER: Final = '"[ \\\\t\\\\n\\\\r]*:'
_REPEATED: Final = "arrayFold((acc, _i) -> {level}, range({levels}), {entries})"


def _map_attributes(node: exp.Expr, attribute_sql: str) -> exp.Expr:
    """Return an array with `attribute_sql` for each attribute, whose key is `e.1` and whose value is `e.2`."""
    metadata, extras, project, levels = node.expressions
    extra_entries = "arrayFilter(e -> e.2 != 'null', JSONExtractKeysAndValuesRaw(_x))"
    top_level = f"arrayConcat({extra_entries}, if(_p = '', [], [tuple('project', _p)]))"
    scalar_metadata = "if(startsWith(_m, '{') OR _m = 'null', [], [tuple('metadata', _m)])"
    children = "JSONExtractKeysAndValuesRaw(_m)"
    metadata_entries = (
        f"arrayFilter(e -> NOT has(arrayMap(o -> o.1, _top), e.1), arrayConcat({children}, {scalar_metadata}))"
    )
    entries = f"arrayMap(_top -> arrayConcat(_top, {metadata_entries}), [{top_level}])[1]"
    # Events are stored as they were sent, with spaces between their tokens.
    members = f"countMatches(_m, '{_MEMBER}') + countMatches(_x, '{_MEMBER}')"
    is_small = f"length(_m) + length(_x) <= {MAX_CHARACTERS} AND {members} <= {MAX_MEMBERS}"
    flattened = f"if({is_small}, {expand_levels('_b', constant_int(levels) or 0, _flatten_level, _REPEATED)}, _b)"
    attributes = f"arrayMap(e -> {attribute_sql}, arrayFilter(e -> e.2 != 'null', {flattened}))"
    result = f"arrayMap(_b -> {attributes}, [{entries}])[1]"
    quoted = "if({2} IS NULL, '', toJSONString(assumeNotNull({2})))"
    documents = f"[ifNull({{0}}, '{{}}')], [ifNull({{1}}, '{{}}')], [{quoted}]"
    return fragment(f"arrayMap((_m, _x, _p) -> {result}, {documents})[1]", metadata, extras, project)


_TEXT: Final = "if(startsWith(e.2, '\"'), JSONExtractString(e.2), e.2)"


def _map(node: exp.Expr) -> exp.Expr:
    member = f"concat(toJSONString(e.1), ':', toJSONString({_TEXT}))"
    return fragment("concat('{', arrayStringConcat({0}, ','), '}')", _map_attributes(node, member))


def _keys(node: exp.Expr) -> exp.Expr:
    return _map_attributes(node, "e.1")


def _values(node: exp.Expr) -> exp.Expr:
    return _map_attributes(node, _TEXT)


def _json_text(node: exp.Expr) -> exp.Expr:
    """Return an event's value as JSON text, which it already is."""
    return fragment("{0}", node.expressions[0])


RULES = RuleSet(
    by_name={
        internal_function("json_text").upper(): _json_text,
        internal_function("attribute").upper(): _attribute,
        internal_function("attribute_scalar").upper(): _scalar,
        internal_function("attributes").upper(): _map,
        internal_function("attribute_keys").upper(): _keys,
        internal_function("attribute_values").upper(): _values,
    }
)
