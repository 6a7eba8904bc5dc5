"""Events' values: paths into them, repeated records as arrays, the maps of attributes, and the redaction of texts."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.aggregates import EVENT_NUMBER, event_number
from cordwood.engines.duckdb.rules.building_blocks import NAMES, is_name, once, variant_text
from cordwood.model.datatype import Kind
from cordwood.model.event import ValueKind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import STRING, VARIANT, kind_of, typed_as
from cordwood.sql.internal_functions import MAX_CHARACTERS, MAX_KEY_BYTES, MAX_MEMBERS, MEMBER, expand_levels
from cordwood.sql.lowering import RuleSet, fragment, name_part, text_part
from cordwood.sql.nodes import (
    KINDS,
    AsEventValue,
    Operation,
    PathRead,
    RecordElements,
    RecordTest,
    RedactedSecret,
    RedactionCall,
    constant_int,
    internal_function,
    operation_of,
    path_steps,
    path_value,
)
from cordwood.sql.redaction.masking import HIDDEN, REDACT_EVENT, Redactions, redaction_mode_of


def _path(node: exp.Expr) -> exp.Expr:
    """Lower a path read; a STRING is read directly as text, which is fast with DuckDB's shredded columns."""
    steps = path_steps(node)
    path = path_part(path_value(node), steps, PathRead(steps))
    path.meta[KINDS] = node.meta_get(KINDS)
    return variant_text(path) if kind_of(node) is Kind.STRING else path


def path_part(value: exp.Expr, steps: Sequence[str], does: Operation | None = None) -> exp.Expr:
    """Return the value at a path below a VARIANT; keys that DuckDB does not accept as names are in brackets."""
    template = "{0}" + "".join(
        f".{{{index}}}" if is_name(step) else f"[{{{index}}}]" for index, step in enumerate(steps, 1)
    )
    keys = [name_part(step) if is_name(step) else text_part(step) for step in steps]
    return fragment(template, value, *keys, operation=does)


def _convert_answered(node: exp.Expr) -> exp.Expr:
    """Convert a column of the final SELECT: a path where only texts were seen to text, an integral sum to an integer.

    Grouping and sorting texts is seven times as fast as grouping and sorting VARIANTs.
    """
    value = node.this
    if value.meta_get("only_text") and kind_of(value) is Kind.VARIANT and _is_outermost(node):
        node.set("this", typed_as(variant_text(copied(value)), STRING))
        typed_as(node, STRING)
    if value.meta_get(EVENT_NUMBER) and _is_outermost(node):
        node.set("this", typed_as(fragment(event_number("{0}"), copied(value)), VARIANT))
        typed_as(node, VARIANT)
    return node


def _is_outermost(node: exp.Expr) -> bool:
    """Return whether this is a column of the final SELECT list."""
    select = node.parent
    return isinstance(select, exp.Select) and select.parent is None


_KIND: Final = "left(variant_typeof({0}), 5)"


def _elements(node: exp.Expr) -> exp.Expr:
    """Return the records in a value: an array's elements, an object as an array of one element, else an empty array."""
    elements = operation_of(node, RecordElements)
    if elements is not None and elements.only_arrays:
        return fragment("coalesce(CAST({0} AS VARIANT[]), [])", node.expressions[0])
    arrays = f"CASE {_KIND} WHEN 'ARRAY' THEN CAST({{0}} AS VARIANT[]) WHEN 'OBJEC' THEN [{{0}}] ELSE [] END"
    return fragment(arrays, node.expressions[0])


def _is_record(node: exp.Expr) -> exp.Expr:
    """Lower a test for an object; it tests for NULL first, which does not read the value."""
    return fragment(f"({{0}} IS NOT NULL AND {_KIND} = 'OBJEC')", node.expressions[0], operation=RecordTest())


def _slot(node: exp.Expr) -> exp.Expr:
    kind = kind_of(node)
    if kind is None or kind is Kind.STRING or _is_null_test(node):
        return node
    # A copy, because a node cannot be part of its own replacement.
    return fragment(f"CAST({{0}} AS {NAMES[kind]})", copied(node))


def _is_null_test(node: exp.Expr) -> bool:
    """Return whether the parameter is only tested for NULL: that needs no cast, and each cast costs planning time."""
    return isinstance(node.parent, exp.Is) and isinstance(node.parent.expression, exp.Null)


_COMPOSITE_KINDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})
_VALUE_KIND: Final = "left(variant_typeof(@a), 5)"
_JSON: Final = "(@a::JSON)::VARCHAR"


def _attribute(node: exp.Expr) -> exp.Expr:
    """Return an attribute as text: an array as JSON, an object as NULL unless it is empty."""
    value = node.expressions[0]
    kinds = value.meta_get(KINDS)
    if kinds is not None and not kinds & _COMPOSITE_KINDS:
        return variant_text(value)
    return _text_of(value, "CASE WHEN " + _JSON + " = '{}' THEN '{}' END")


def _attribute_scalar(node: exp.Expr) -> exp.Expr:
    return _text_of(node.expressions[0], "NULL")


def _text_of(value: exp.Expr, object_sql: str) -> exp.Expr:
    return once(
        f"CASE {_VALUE_KIND} WHEN 'ARRAY' THEN {_JSON} WHEN 'OBJEC' THEN {object_sql} ELSE @a::VARCHAR END", value
    )


_CHILDREN: Final = "map_entries(%s::MAP(VARCHAR, JSON))"


def _entries(value: str) -> str:
    """Return the keys and values of a JSON object; an empty list for NULL and other values."""
    children = f"list_transform({_CHILDREN % value}, lambda c: struct_pack(k := c.key, v := c.value))"
    return f"CASE WHEN json_type({value}) = 'OBJECT' THEN {children} ELSE [] END"


def _members(value: str) -> str:
    """Return SQL that counts the members of a JSON object at all depths; text that looks like a member counts, too."""
    text = f"{value}::VARCHAR"
    return f"(strlen({text}) - strlen(replace({text}, '{MEMBER}', ''))) // {len(MEMBER)}"


def _flatten_level(entries: str) -> str:
    """Return the entries with each object replaced by its own entries."""
    children = f"list_transform({_CHILDREN % 'e.v'}, lambda c: struct_pack(k := concat(e.k, '.', c.key), v := c.value))"
    is_expanded = f"json_type(e.v) = 'OBJECT' AND e.v <> '{{}}' AND strlen(e.k) <= {MAX_KEY_BYTES}"
    inner = f"CASE WHEN {is_expanded} THEN {children} ELSE [e] END"
    return f"flatten(list_transform({entries}, lambda e: {inner}))"


_REPEATED: Final = "list_reduce(range({levels}), lambda acc, _i: {level}, {entries})"


def _map_attributes(node: exp.Expr, attribute_sql: str) -> exp.Expr:
    """Return a list with `attribute_sql` for each attribute, whose key is `e.k` and whose value is `e.v`."""
    metadata, extras, project, levels = node.expressions
    extra_entries = f"list_filter({_entries('_j.x')}, lambda e: e.v <> 'null')"
    project_entry = "CASE WHEN _j.p IS NULL THEN [] ELSE [struct_pack(k := 'project', v := to_json(_j.p))] END"
    top_level = f"list_concat({extra_entries}, {project_entry})"
    scalar_metadata = (
        "CASE WHEN json_type(_j.m) IN ('OBJECT', 'NULL') THEN [] ELSE [struct_pack(k := 'metadata', v := _j.m)] END"
    )
    metadata_entries = (
        f"list_filter(list_concat({_entries('_j.m')}, coalesce({scalar_metadata}, [])),"
        " lambda e: NOT list_contains(list_transform(_t.top, lambda o: o.k), e.k))"
    )
    entries = f"list_transform([struct_pack(top := {top_level}, m := _j.m)], lambda _t: list_concat(_t.top, {metadata_entries}))[1]"
    size = "strlen(_j.m::VARCHAR) + coalesce(strlen(_j.x::VARCHAR), 0)"
    members = f"{_members('_j.m')} + coalesce({_members('_j.x')}, 0)"
    is_small = f"{size} <= {MAX_CHARACTERS} AND {members} <= {MAX_MEMBERS}"
    flattened = f"CASE WHEN {is_small} THEN {expand_levels('_b', constant_int(levels) or 0, _flatten_level, _REPEATED)} ELSE _b END"
    attributes = f"list_transform(list_filter({flattened}, lambda e: e.v <> 'null'), lambda e: {attribute_sql})"
    result = f"list_transform([{entries}], lambda _b: {attributes})[1]"
    documents = "[struct_pack(m := coalesce({0}::JSON, '{}'::JSON), x := {1}::JSON, p := {2})]"
    return fragment(f"list_transform({documents}, lambda _j: {result})[1]", metadata, extras, project)


_TEXT: Final = "CASE WHEN json_type(e.v) = 'VARCHAR' THEN e.v->>'$' ELSE e.v::VARCHAR END"


def _map(node: exp.Expr) -> exp.Expr:
    member = f"concat(to_json(e.k)::VARCHAR, ':', to_json({_TEXT})::VARCHAR)"
    return fragment("concat('{', array_to_string({0}, ','), '}')::JSON", _map_attributes(node, member))


def _keys(node: exp.Expr) -> exp.Expr:
    return _map_attributes(node, "e.k")


def _values(node: exp.Expr) -> exp.Expr:
    return _map_attributes(node, _TEXT)


def _json_text(node: exp.Expr) -> exp.Expr:
    return fragment("({0}::JSON)::VARCHAR", node.expressions[0])


RULES = RuleSet(
    nodes={
        exp.Parameter: _slot,
        exp.Alias: _convert_answered,
    },
    operations={
        PathRead: _path,
        RecordElements: _elements,
        RecordTest: _is_record,
    },
    by_name={
        internal_function("json_text").upper(): _json_text,
        internal_function("attribute").upper(): _attribute,
        internal_function("attribute_scalar").upper(): _attribute_scalar,
        internal_function("attributes").upper(): _map,
        internal_function("attribute_keys").upper(): _keys,
        internal_function("attribute_values").upper(): _values,
    },
)


def _secret(node: exp.Expr) -> exp.Expr:
    """Redact a value whose field name marks it as secret: hide any text, and the texts of an array, as a whole.

    Records are redacted like other values. If no record was seen at the path, records are not searched, and one that
    occurs nevertheless is hidden as a whole.
    """
    secret = operation_of(node, RedactedSecret)
    if secret is not None and not secret.may_be_record:
        return fragment(
            "CASE WHEN regexp_matches(variant_typeof({0}), '^(?:VARCHAR|OBJECT|ARRAY)')"
            f" THEN '{HIDDEN}'::VARIANT ELSE {{0}} END",
            node.expressions[0],
        )
    redact_function = f"{REDACT_EVENT}_{redaction_mode_of(node)}"
    hidden = f"'{HIDDEN}'::VARIANT"
    element = (
        f"CASE WHEN regexp_matches(variant_typeof(e), '^(?:VARCHAR|ARRAY)') THEN {hidden} ELSE {redact_function}(e) END"
    )
    return fragment(
        f"CASE WHEN variant_typeof({{0}}) = 'VARCHAR' THEN {hidden}"
        " WHEN starts_with(variant_typeof({0}), 'ARRAY')"
        f" THEN list_transform(CAST({{0}} AS VARIANT[]), lambda e: {element})::VARIANT"
        f" ELSE {redact_function}({{0}}) END",
        node.expressions[0],
        operation=RedactionCall(redact_function),
    )


def _as_event_value(text: exp.Expr) -> exp.Expr:
    return fragment("{0}::VARIANT", text, operation=AsEventValue())


REDACTION_RULES = Redactions(variant_text, _as_event_value, _secret).rules()
