"""Rules for events' values: reads of paths, repeated records as arrays, maps of attributes, and redaction."""

from enum import StrEnum
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    attach_event_text,
    attached_event_text,
    event_text_sql,
    event_value_as_text,
    fill_template,
)
from cordwood.engines.clickhouse.rules.json_functions import json_path_arguments
from cordwood.engines.clickhouse.tables import JSON_COLUMN_BY_TEXT_COLUMN, OBJECT_PATHS_COLUMN
from cordwood.model.datatype import Kind
from cordwood.model.event import ValueKind, format_path
from cordwood.sql.datatypes import inherit_metadata, kind_of
from cordwood.sql.grouping import grouping_keys, resolve_group_ordinal
from cordwood.sql.internal_functions import (
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
    RedactionCall,
    attach_operation,
    constant_int,
    internal_function_name,
    operation_if_of_class,
    operation_node,
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
    """Translate the read of a path in an event; a JSON null counts as a missing value."""
    path, keys = json_path_arguments(list(path_steps(node)), first=1)
    if kind_of(node) is Kind.STRING:
        return fragment_node(f"JSONExtract({{0}}{path}, 'Nullable(String)')", path_root(node), *keys)
    return fragment_node(f"nullIf(nullIf(JSONExtractRaw({{0}}{path}), ''), 'null')", path_root(node), *keys)


_ARRAY_ITEMS_SQL: Final = "arrayMap(_e -> CAST(_e, 'Nullable(String)'), JSONExtractArrayRaw(ifNull({0}, '')))"


def _translate_record_elements(node: exp.Expr) -> exp.Expr:
    """Translate an event's value to the array of its records.

    An object gives an array with this object, and an array gives its elements. Any other value gives an empty array.
    """
    elements = operation_if_of_class(node, EventValueElements)
    if elements is not None and elements.were_only_arrays_seen:
        return fragment_node(_ARRAY_ITEMS_SQL, node.expressions[0])
    return fragment_node(
        f"if(ifNull(JSONType({{0}}), 'Null') = 'Object', [{{0}}], {_ARRAY_ITEMS_SQL})", node.expressions[0]
    )


def _translate_is_record(node: exp.Expr) -> exp.Expr:
    test = operation_if_of_class(node, IsObjectTest)
    if test is not None and test.were_only_objects_seen:
        return fragment_node("isNotNull({0})", node.expressions[0])
    return fragment_node("(ifNull(JSONType({0}), 'Null') = 'Object')", node.expressions[0])


class SubcolumnForm(StrEnum):
    """The form in which a path's value is passed from its subcolumn to the expression that reads the path.

    TEXT passes a text unchanged. PLAIN passes a number or boolean as its text, which is also its JSON. JSON passes a
    text, number or boolean as JSON. RECORD passes whether there is an object at the path.
    """

    TEXT = "text"
    NUMBER_OR_BOOL_TEXT = "plain"
    JSON = "json"
    IS_OBJECT = "record"


class SubcolumnRead(Operation, frozen=True):
    """The operation that reads a path from a subcolumn; its operand is the column of the stream's table."""

    form: SubcolumnForm
    steps: tuple[str, ...]


class EventFromSubcolumn(Operation, frozen=True):
    """The operation that makes an event's value from what was read from a subcolumn.

    Its operand is that read, or a column of a sub-query that contains the read.
    """

    form: SubcolumnForm


def subcolumn_read(table: str, column: str, steps: tuple[str, ...], mode: SubcolumnForm) -> exp.Expr:
    """Return the operation that reads a path from the stream's table."""
    name = OBJECT_PATHS_COLUMN if mode is SubcolumnForm.IS_OBJECT else JSON_COLUMN_BY_TEXT_COLUMN[column]
    column_read = exp.column(name, table, quoted=True)
    path = steps if mode is not SubcolumnForm.IS_OBJECT or column == "extras" else (column, *steps)
    return operation_node(SubcolumnRead(mode, path), column_read)


def event_from_subcolumn(value: exp.Expr, mode: SubcolumnForm, origin: exp.Expr) -> exp.Expr:
    """Return the operation that makes an event's value from `value`, which was read from a subcolumn.

    The operation replaces the node `origin`, and has the same type.
    """
    return inherit_metadata(operation_node(EventFromSubcolumn(mode), value), origin)


_READ_TEMPLATE_BY_FORM: Final = {
    SubcolumnForm.TEXT: "{0}%s.:String",
    SubcolumnForm.NUMBER_OR_BOOL_TEXT: "CAST({0}%s, 'Nullable(String)')",
    SubcolumnForm.JSON: "nullIf(toJSONString({0}%s), 'null')",
}


def _translate_subcolumn_read(node: exp.Expr) -> exp.Expr:
    (column,), operation_ = node.expressions, operation_if_of_class(node, SubcolumnRead)
    if operation_ is None:
        raise ValueError("no stored path")
    if operation_.form is SubcolumnForm.IS_OBJECT:
        return fragment_node("(position({0}, {1}) > 0)", column, string_literal_node(format_path(operation_.steps)))
    path_template = "".join(f".{{{index}}}" for index in range(1, len(operation_.steps) + 1))
    return fragment_node(
        _READ_TEMPLATE_BY_FORM[operation_.form] % path_template,
        column,
        *(identifier_node(step, is_verbatim=True) for step in operation_.steps),
    )


def _translate_event_from_subcolumn(node: exp.Expr) -> exp.Expr:
    (value,), operation_ = node.expressions, operation_if_of_class(node, EventFromSubcolumn)
    is_text = kind_of(node) is Kind.STRING
    match None if operation_ is None else operation_.form:
        case SubcolumnForm.TEXT if not is_text:
            return attach_event_text(fragment_node("nullIf(toJSONString({0}), 'null')", value), value)
        case SubcolumnForm.NUMBER_OR_BOOL_TEXT if not is_text:
            return attach_event_text(fragment_node("({0})", value), value)
        case SubcolumnForm.JSON if is_text:
            return fragment_node(event_text_sql("{0}"), value)
        case SubcolumnForm.IS_OBJECT:
            return fragment_node("ifNull({0}, false)", value)
    return fragment_node("({0})", value)


def group_by_attached_texts(select: exp.Expr) -> None:
    """In GROUP BY, replace each value from an event by the text from which it was made, if that text is attached to it.

    A query that is grouped by the text may select both the text and the value.
    """
    group = select.args.get("group")
    for key in list(grouping_keys(group)) if group is not None else ():
        text = attached_event_text(resolve_group_ordinal(select, key))
        if text is not None:
            key.replace(text)


_COMPOSITE_VALUE_KINDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})


def _translate_attribute(node: exp.Expr) -> exp.Expr:
    """Translate an attribute (a field of an event) to its text.

    Arrays and empty objects give their JSON. Other objects give NULL, because their members are attributes themselves.
    """
    value = node.expressions[0]
    kinds = value.meta_get(PATH_KINDS_METADATA_KEY)
    if attached_event_text(value) is not None or (kinds is not None and not kinds & _COMPOSITE_VALUE_KINDS):
        return event_value_as_text(value)
    return _attribute_text(value, "if(@a = '{}', @a, NULL)")


def _translate_scalar_attribute(node: exp.Expr) -> exp.Expr:
    return _attribute_text(node.expressions[0], "NULL")


def _attribute_text(value: exp.Expr, object_sql: str) -> exp.Expr:
    text = "JSONExtract(@a, 'Nullable(String)')"
    return fill_template(f"multiIf(startsWith(@a, '['), @a, startsWith(@a, '{{'), {object_sql}, {text})", value)


# The pairs of a key and a value in a JSON object, sorted by key, as DuckDB sorts them.
_SORTED_MEMBERS_SQL: Final = "arraySort(JSONExtractKeysAndValuesRaw(%s))"


def _flatten_level_sql(entries: str) -> str:
    """Return SQL that flattens the list `entries` of (key, value) pairs by one level.

    A pair whose value is an object is replaced by one pair for each member of the object, with a key such as `a.b`.
    Empty objects, and objects whose key is too long, stay unchanged.
    """
    children = f"arrayMap(c -> tuple(concat(e.1, '.', c.1), c.2), {_SORTED_MEMBERS_SQL % 'e.2'})"
    is_expanded = f"startsWith(e.2, '{{') AND e.2 != '{{}}' AND length(e.1) <= {MAX_FLATTENED_KEY_BYTES}"
    return f"arrayFlatten(arrayMap(e -> if({is_expanded}, {children}, [e]), {entries}))"


# The RE2 pattern for the closing quote of a key and the colon after it, escaped for a ClickHouse literal.
_JSON_KEY_END_PATTERN: Final = '"[ \\\\t\\\\n\\\\r]*:'
# The first entry of each key in the list `_f`. If an event has both the key `a.b` and the key `b` in the object `a`,
# two entries have the key `a.b`. As keys are sorted, the entry of the object `a` is the first.
_FIRST_OF_EACH_KEY_SQL: Final = "arrayFilter((e, n) -> n = 1, _f, arrayEnumerateUniq(arrayMap(o -> o.1, _f)))"
_FLATTEN_LEVELS_SQL: Final = "arrayFold((acc, _i) -> {level}, range({levels}), {entries})"


def _collect_from_attributes(node: exp.Expr, attribute_sql: str) -> exp.Expr:
    """Return an array with the value of `attribute_sql` for each attribute.

    In `attribute_sql`, `e.1` is the attribute's key, and `e.2` is its value.
    """
    metadata, extras, project, levels = node.expressions
    extra_entries = f"arrayFilter(e -> e.2 != 'null', {_SORTED_MEMBERS_SQL % '_x'})"
    top_level = f"arrayConcat({extra_entries}, if(_p = '', [], [tuple('project', _p)]))"
    scalar_metadata = "if(startsWith(_m, '{') OR _m = 'null', [], [tuple('metadata', _m)])"
    children = _SORTED_MEMBERS_SQL % "_m"
    metadata_entries = (
        f"arrayFilter(e -> NOT has(arrayMap(o -> o.1, _top), e.1), arrayConcat({children}, {scalar_metadata}))"
    )
    entries = f"arrayMap(_top -> arrayConcat(_top, {metadata_entries}), [{top_level}])[1]"
    # The number of members in objects is found by counting the colons after keys. White space may precede a colon,
    # because events are stored as they were sent.
    members = f"countMatches(_m, '{_JSON_KEY_END_PATTERN}') + countMatches(_x, '{_JSON_KEY_END_PATTERN}')"
    is_small = (
        f"length(_m) + length(_x) <= {MAX_FLATTENED_JSON_CHARACTERS} AND {members} <= {MAX_FLATTENED_JSON_MEMBERS}"
    )
    flattened = f"if({is_small}, {expand_nested_objects('_b', constant_int(levels) or 0, _flatten_level_sql, _FLATTEN_LEVELS_SQL)}, _b)"
    unique = f"arrayMap(_f -> {_FIRST_OF_EACH_KEY_SQL}, [arrayFilter(e -> e.2 != 'null', {flattened})])[1]"
    attributes = f"arrayMap(e -> {attribute_sql}, {unique})"
    result = f"arrayMap(_b -> {attributes}, [{entries}])[1]"
    quoted = "if({2} IS NULL, '', toJSONString(assumeNotNull({2})))"
    documents = f"[ifNull({{0}}, '{{}}')], [ifNull({{1}}, '{{}}')], [{quoted}]"
    return fragment_node(f"arrayMap((_m, _x, _p) -> {result}, {documents})[1]", metadata, extras, project)


_ATTRIBUTE_TEXT_SQL: Final = "if(startsWith(e.2, '\"'), JSONExtractString(e.2), e.2)"


def _translate_attribute_map(node: exp.Expr) -> exp.Expr:
    member = f"concat(toJSONString(e.1), ':', toJSONString({_ATTRIBUTE_TEXT_SQL}))"
    return fragment_node("concat('{', arrayStringConcat({0}, ','), '}')", _collect_from_attributes(node, member))


def _translate_attribute_keys(node: exp.Expr) -> exp.Expr:
    return _collect_from_attributes(node, "e.1")


def _translate_attribute_values(node: exp.Expr) -> exp.Expr:
    return _collect_from_attributes(node, _ATTRIBUTE_TEXT_SQL)


def _translate_json_text(node: exp.Expr) -> exp.Expr:
    """Translate a call for the JSON text of an event's value: it is the value itself, which is stored as JSON text."""
    return fragment_node("{0}", node.expressions[0])


RULES = RuleSet(
    by_operation_class={
        PathRead: _translate_path_read,
        EventValueElements: _translate_record_elements,
        IsObjectTest: _translate_is_record,
        SubcolumnRead: _translate_subcolumn_read,
        EventFromSubcolumn: _translate_event_from_subcolumn,
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
    """Redact the value of a field whose name marks it as secret.

    A text is replaced as a whole, and so is each text and each array inside an array. All other values, such as
    records, are redacted in the usual way.
    """
    redact_function = f"{REDACT_EVENT_FUNCTION_PREFIX}_{redaction_mode_of(node)}"
    element = f"if(JSONType(_e) IN ('String', 'Array'), '\"{REDACTION_WORD}\"', ifNull({redact_function}(CAST(_e, 'Nullable(String)')), 'null'))"
    elements = (
        f"'[' || arrayStringConcat(arrayMap(_e -> {element}, JSONExtractArrayRaw(assumeNotNull(@a))), ',') || ']'"
    )
    result = fill_template(
        f"multiIf(JSONType(@a) = 'String', '\"{REDACTION_WORD}\"', JSONType(@a) = 'Array', {elements}, {redact_function}(@a))",
        node.expressions[0],
    )
    return attach_operation(result, RedactionCall(redact_function))


def _as_event_value(text: exp.Expr) -> exp.Expr:
    return attach_event_text(fragment_node("nullIf(toJSONString({0}), 'null')", text), text)


REDACTION_RULES = RedactionLoweringRules(event_value_as_text, _as_event_value, _redact_secret).rules()
