"""Rules for values of events: reads of paths, repeated records as arrays, maps of attributes, and redaction."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    EVENT_NUMBER_RULES,
    TYPE_NAME_BY_KIND,
    fill_template,
    is_valid_engine_name,
    variant_as_text,
)
from cordwood.model.datatype import Kind
from cordwood.model.event import ValueKind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import STRING, kind_of, set_datatype
from cordwood.sql.internal_functions import (
    JSON_KEY_VALUE_SEPARATOR,
    MAX_FLATTENED_JSON_CHARACTERS,
    MAX_FLATTENED_JSON_MEMBERS,
    MAX_FLATTENED_KEY_BYTES,
    expand_nested_objects,
)
from cordwood.sql.lowering import RuleSet, fragment_node, identifier_node, string_literal_node
from cordwood.sql.nodes import (
    PATH_KINDS_METADATA_KEY,
    EventValueElements,
    IsObjectTest,
    Operation,
    PathRead,
    RedactedSecret,
    RedactionCall,
    TextAsEventValue,
    constant_int,
    internal_function_name,
    operation_if_of_class,
    path_root,
    path_steps,
)
from cordwood.sql.redaction.masking import (
    REDACT_EVENT_FUNCTION_PREFIX,
    REDACTION_WORD,
    RedactionLoweringRules,
    redaction_mode_of,
)


def _translate_path_read(node: exp.Expr) -> exp.Expr:
    """Translate a read of a path; a STRING is read directly as text from shredded columns, which is fast."""
    steps = path_steps(node)
    path = value_at_path_node(path_root(node), steps, PathRead(steps))
    path.meta[PATH_KINDS_METADATA_KEY] = node.meta_get(PATH_KINDS_METADATA_KEY)
    return variant_as_text(path) if kind_of(node) is Kind.STRING else path


def value_at_path_node(value: exp.Expr, steps: Sequence[str], does: Operation | None = None) -> exp.Expr:
    """Return SQL for the value at the path `steps` below the VARIANT `value`.

    Keys that DuckDB does not accept as names are written in brackets.
    """
    template = "{0}" + "".join(
        f".{{{index}}}" if is_valid_engine_name(step) else f"[{{{index}}}]" for index, step in enumerate(steps, 1)
    )
    keys = [identifier_node(step) if is_valid_engine_name(step) else string_literal_node(step) for step in steps]
    return fragment_node(template, value, *keys, operation=does)


def _convert_result_column(node: exp.Expr) -> exp.Expr:
    """Convert a column of the final SELECT that reads a path with only texts to a text.

    Texts are grouped and sorted seven times as fast as VARIANTs.
    """
    value = node.this
    if value.meta_get("only_text") and kind_of(value) is Kind.VARIANT and _is_final_select_column(node):
        node.set("this", set_datatype(variant_as_text(copy_tree(value)), STRING))
        set_datatype(node, STRING)
    EVENT_NUMBER_RULES.translate_result_column(node)
    return node


def _is_final_select_column(node: exp.Expr) -> bool:
    """Return whether the node is a column of the final SELECT list."""
    select = node.parent
    return isinstance(select, exp.Select) and select.parent is None


_VALUE_TYPE_PREFIX_SQL: Final = "left(variant_typeof({0}), 5)"


def _translate_record_elements(node: exp.Expr) -> exp.Expr:
    """Return SQL for the array of the records in a value.

    An array gives its elements, an object gives an array with this object, and other values give an empty array.
    """
    elements = operation_if_of_class(node, EventValueElements)
    if elements is not None and elements.were_only_arrays_seen:
        return fragment_node("coalesce(CAST({0} AS VARIANT[]), [])", node.expressions[0])
    arrays = f"CASE {_VALUE_TYPE_PREFIX_SQL} WHEN 'ARRAY' THEN CAST({{0}} AS VARIANT[]) WHEN 'OBJEC' THEN [{{0}}] ELSE [] END"
    return fragment_node(arrays, node.expressions[0])


def _translate_is_record(node: exp.Expr) -> exp.Expr:
    """Translate a test whether a value is an object; it tests for NULL first, because that does not read the value."""
    return fragment_node(
        f"({{0}} IS NOT NULL AND {_VALUE_TYPE_PREFIX_SQL} = 'OBJEC')", node.expressions[0], operation=IsObjectTest()
    )


def _translate_parameter(node: exp.Expr) -> exp.Expr:
    kind = kind_of(node)
    if kind is None or kind is Kind.STRING or _is_tested_for_null(node):
        return node
    # Copy the node, because a node cannot be part of its own replacement.
    return fragment_node(f"CAST({{0}} AS {TYPE_NAME_BY_KIND[kind]})", copy_tree(node))


def _is_tested_for_null(node: exp.Expr) -> bool:
    """Return whether `node`, a parameter of the query, is only tested for NULL, as in `@name IS NULL`.

    Such a parameter needs no cast to its type. Casts are omitted where possible, because they take planning time.
    """
    return isinstance(node.parent, exp.Is) and isinstance(node.parent.expression, exp.Null)


_COMPOSITE_VALUE_KINDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})
_TYPE_PREFIX_OF_PART_SQL: Final = "left(variant_typeof(@a), 5)"
_AS_JSON_TEXT_SQL: Final = "(@a::JSON)::VARCHAR"
# A cast of a DOUBLE to text spells these numbers otherwise than JSON does: 1e-05 instead of 0.00001, and inf.
_IS_SPELLED_UNLIKE_JSON_SQL: Final = (
    "(contains({0}, 'e-') OR contains({0}, 'e+') OR {0} IN ('inf', '-inf', 'nan', '-nan'))"
)
_NUMBER_TEXT_AS_JSON_SQL: Final = "(CAST(CAST({0} AS DOUBLE) AS VARIANT)::JSON)::VARCHAR"


def _translate_attribute(node: exp.Expr) -> exp.Expr:
    """Translate an attribute to text: an array becomes JSON, an empty object becomes `{}`, any other object NULL.

    Numbers are spelled as in JSON, which is also their spelling in the map of all attributes.
    """
    value = node.expressions[0]
    kinds = value.meta_get(PATH_KINDS_METADATA_KEY)
    if kinds is None or kinds & _COMPOSITE_VALUE_KINDS:
        return _attribute_text(value, "CASE WHEN " + _AS_JSON_TEXT_SQL + " = '{}' THEN '{}' END")
    text = variant_as_text(value)
    if ValueKind.NUMBER not in kinds:
        return text
    if ValueKind.TEXT not in kinds:
        sql = f"CASE WHEN {_IS_SPELLED_UNLIKE_JSON_SQL} THEN {_NUMBER_TEXT_AS_JSON_SQL} ELSE {{0}} END"
        return fragment_node(sql, text)
    is_double = "variant_typeof({1}) = 'DOUBLE'"
    sql = f"CASE WHEN {_IS_SPELLED_UNLIKE_JSON_SQL} AND {is_double} THEN ({{1}}::JSON)::VARCHAR ELSE {{0}} END"
    return fragment_node(sql, text, copy_tree(value))


def _translate_scalar_attribute(node: exp.Expr) -> exp.Expr:
    return _attribute_text(node.expressions[0], "NULL")


def _attribute_text(value: exp.Expr, object_sql: str) -> exp.Expr:
    return fill_template(
        f"CASE {_TYPE_PREFIX_OF_PART_SQL} WHEN 'ARRAY' THEN {_AS_JSON_TEXT_SQL} WHEN 'OBJEC' THEN {object_sql}"
        f" WHEN 'DOUBL' THEN {_AS_JSON_TEXT_SQL} ELSE @a::VARCHAR END",
        value,
    )


_OBJECT_ENTRIES_SQL: Final = "map_entries(%s::MAP(VARCHAR, JSON))"


def _json_entries_sql(value: str) -> str:
    """Return SQL for the list of keys and values of a JSON object; the list is empty for other values and for NULL."""
    children = f"list_transform({_OBJECT_ENTRIES_SQL % value}, lambda c: struct_pack(k := c.key, v := c.value))"
    return f"CASE WHEN json_type({value}) = 'OBJECT' THEN {children} ELSE [] END"


def _count_members_sql(value: str) -> str:
    """Return SQL that counts the members of a JSON object at all depths.

    The SQL counts how often `":` occurs in the JSON text. If a string in the object contains `":` as well, the count is
    too high.
    """
    text = f"{value}::VARCHAR"
    return f"(strlen({text}) - strlen(replace({text}, '{JSON_KEY_VALUE_SEPARATOR}', ''))) // {len(JSON_KEY_VALUE_SEPARATOR)}"


def _flatten_level_sql(entries: str) -> str:
    """Return SQL that flattens a list of keys and values by one level: each object is replaced by its own members."""
    children = f"list_transform({_OBJECT_ENTRIES_SQL % 'e.v'}, lambda c: struct_pack(k := concat(e.k, '.', c.key), v := c.value))"
    is_expanded = f"json_type(e.v) = 'OBJECT' AND e.v <> '{{}}' AND strlen(e.k) <= {MAX_FLATTENED_KEY_BYTES}"
    inner = f"CASE WHEN {is_expanded} THEN {children} ELSE [e] END"
    return f"flatten(list_transform({entries}, lambda e: {inner}))"


_KEYS_SQL: Final = "list_transform(_f, lambda o: o.k)"
# The first entry of each key in the list `_f`. If an event has both the key `a.b` and the key `b` in the object `a`,
# two entries have the key `a.b`. DuckDB sorts the keys of objects, so the entry of the object `a` is the first.
_FIRST_OF_EACH_KEY_SQL: Final = (
    f"CASE WHEN len(list_distinct({_KEYS_SQL})) = len(_f) THEN _f ELSE"
    f" list_transform([{_KEYS_SQL}], lambda _k: list_filter(_f, lambda e, i: list_position(_k, e.k) = i))[1] END"
)
_FLATTEN_LEVELS_SQL: Final = "list_reduce(range({levels}), lambda acc, _i: {level}, {entries})"


def _map_event_attributes_to_list(node: exp.Expr, attribute_sql: str) -> exp.Expr:
    """Return SQL for a list with the value of `attribute_sql` for each attribute of an event.

    In `attribute_sql`, the key of the attribute is `e.k`, and its value is `e.v`.
    """
    metadata, extras, project, levels = node.expressions
    extra_entries = f"list_filter({_json_entries_sql('_j.x')}, lambda e: e.v <> 'null')"
    project_entry = "CASE WHEN _j.p IS NULL THEN [] ELSE [struct_pack(k := 'project', v := to_json(_j.p))] END"
    top_level = f"list_concat({extra_entries}, {project_entry})"
    scalar_metadata = (
        "CASE WHEN json_type(_j.m) IN ('OBJECT', 'NULL') THEN [] ELSE [struct_pack(k := 'metadata', v := _j.m)] END"
    )
    metadata_entries = (
        f"list_filter(list_concat({_json_entries_sql('_j.m')}, coalesce({scalar_metadata}, [])),"
        " lambda e: NOT list_contains(list_transform(_t.top, lambda o: o.k), e.k))"
    )
    entries = f"list_transform([struct_pack(top := {top_level}, m := _j.m)], lambda _t: list_concat(_t.top, {metadata_entries}))[1]"
    size = "strlen(_j.m::VARCHAR) + coalesce(strlen(_j.x::VARCHAR), 0)"
    members = f"{_count_members_sql('_j.m')} + coalesce({_count_members_sql('_j.x')}, 0)"
    is_small = f"{size} <= {MAX_FLATTENED_JSON_CHARACTERS} AND {members} <= {MAX_FLATTENED_JSON_MEMBERS}"
    flattened = f"CASE WHEN {is_small} THEN {expand_nested_objects('_b', constant_int(levels) or 0, _flatten_level_sql, _FLATTEN_LEVELS_SQL)} ELSE _b END"
    unique = (
        f"list_transform([list_filter({flattened}, lambda e: e.v <> 'null')], lambda _f: {_FIRST_OF_EACH_KEY_SQL})[1]"
    )
    attributes = f"list_transform({unique}, lambda e: {attribute_sql})"
    result = f"list_transform([{entries}], lambda _b: {attributes})[1]"
    documents = "[struct_pack(m := coalesce({0}::JSON, '{}'::JSON), x := {1}::JSON, p := {2})]"
    return fragment_node(f"list_transform({documents}, lambda _j: {result})[1]", metadata, extras, project)


_ATTRIBUTE_TEXT_SQL: Final = "CASE WHEN json_type(e.v) = 'VARCHAR' THEN e.v->>'$' ELSE e.v::VARCHAR END"


def _translate_attribute_map(node: exp.Expr) -> exp.Expr:
    member = f"concat(to_json(e.k)::VARCHAR, ':', to_json({_ATTRIBUTE_TEXT_SQL})::VARCHAR)"
    return fragment_node(
        "concat('{', array_to_string({0}, ','), '}')::JSON", _map_event_attributes_to_list(node, member)
    )


def _translate_attribute_keys(node: exp.Expr) -> exp.Expr:
    return _map_event_attributes_to_list(node, "e.k")


def _translate_attribute_values(node: exp.Expr) -> exp.Expr:
    return _map_event_attributes_to_list(node, _ATTRIBUTE_TEXT_SQL)


def _translate_json_text(node: exp.Expr) -> exp.Expr:
    return fragment_node("({0}::JSON)::VARCHAR", node.expressions[0])


RULES = RuleSet(
    by_node_class={
        exp.Parameter: _translate_parameter,
        exp.Alias: _convert_result_column,
    },
    by_operation_class={
        PathRead: _translate_path_read,
        EventValueElements: _translate_record_elements,
        IsObjectTest: _translate_is_record,
    },
    by_function_name={
        internal_function_name("json_text").upper(): _translate_json_text,
        internal_function_name("attribute").upper(): _translate_attribute,
        internal_function_name("attribute_scalar").upper(): _translate_scalar_attribute,
        internal_function_name("attributes").upper(): _translate_attribute_map,
        internal_function_name("attribute_keys").upper(): _translate_attribute_keys,
        internal_function_name("attribute_values").upper(): _translate_attribute_values,
    },
)


def _redact_secret(node: exp.Expr) -> exp.Expr:
    """Redact a value that is secret because of its field's name: hide texts as a whole, also those in an array.

    A record is not hidden as a whole; its fields are redacted by the rules for all events. But if no object or array
    was seen at the path at compile time, simpler SQL is used, which hides any object or array as a whole.
    """
    secret = operation_if_of_class(node, RedactedSecret)
    if secret is not None and not secret.may_be_object_or_array:
        return fragment_node(
            "CASE WHEN regexp_matches(variant_typeof({0}), '^(?:VARCHAR|OBJECT|ARRAY)')"
            f" THEN '{REDACTION_WORD}'::VARIANT ELSE {{0}} END",
            node.expressions[0],
        )
    redact_function = f"{REDACT_EVENT_FUNCTION_PREFIX}_{redaction_mode_of(node)}"
    hidden = f"'{REDACTION_WORD}'::VARIANT"
    element = (
        f"CASE WHEN regexp_matches(variant_typeof(e), '^(?:VARCHAR|ARRAY)') THEN {hidden} ELSE {redact_function}(e) END"
    )
    return fragment_node(
        f"CASE WHEN variant_typeof({{0}}) = 'VARCHAR' THEN {hidden}"
        " WHEN starts_with(variant_typeof({0}), 'ARRAY')"
        f" THEN list_transform(CAST({{0}} AS VARIANT[]), lambda e: {element})::VARIANT"
        f" ELSE {redact_function}({{0}}) END",
        node.expressions[0],
        operation=RedactionCall(redact_function),
    )


def _text_to_variant(text: exp.Expr) -> exp.Expr:
    return fragment_node("{0}::VARIANT", text, operation=TextAsEventValue())


REDACTION_RULES = RedactionLoweringRules(variant_as_text, _text_to_variant, _redact_secret).rules()
