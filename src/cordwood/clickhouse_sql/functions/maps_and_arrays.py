"""Translators of ClickHouse's functions of maps, arrays and JSON texts."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall, checked_arguments
from cordwood.clickhouse_sql.casts import parse_type_name
from cordwood.clickhouse_sql.scope import AttributeForm, all_attributes, array_element_reference, attribute_reference
from cordwood.clickhouse_sql.translate import (
    array_element,
    array_of_values,
    convert_to_type,
    is_json_map,
    map_item,
    unify_values,
)
from cordwood.clickhouse_sql.values import (
    FLAG,
    FLOAT,
    INT,
    MAP,
    STRING,
    ClickHouseType,
    TypedValue,
    array_type_of,
    common_type,
    flag_value,
    text_value,
)
from cordwood.sql.nodes import internal_call

_CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]


def _translate_map(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    parts = checked_arguments(translator, call, 0, -1)
    if len(parts) % 2:
        raise translator.refused_error(call.node, "map takes pairs of a key and a value.")
    keys = [translator.constant_text(key, "The key of a map") for key in parts[::2]]
    if len(set(keys)) < len(keys):
        raise translator.refused_error(call.node, "A map has each key once.")
    values = [translator.value_with_default_for_null(value) for value in parts[1::2]]
    if values:
        nodes, type_ = unify_values(translator, call.node, values)
        values = [TypedValue(node, type_) for node in nodes]
    return TypedValue(exp.Null(), MAP, map_entries=tuple(zip(keys, values, strict=True)))


def _translate_map_keys(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    return keys_of_map(translator, call.node, _map_argument(translator, call))


def keys_of_map(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue) -> TypedValue:
    """Return the keys of a map as an array."""
    if value.map_entries is not None:
        return TypedValue(
            exp.Array(expressions=[exp.Literal.string(key) for key, _ in value.map_entries]), array_type_of(STRING)
        )
    if is_json_map(value):
        return TypedValue(internal_call("json_keys", value.node), array_type_of(STRING))
    return _require_all_attributes(translator, node, AttributeForm.KEYS)


def _translate_map_values(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    value = _map_argument(translator, call)
    if value.map_entries is not None:
        return array_of_values(translator, call.node, [part for _, part in value.map_entries])
    return _require_all_attributes(translator, call.node, AttributeForm.VALUES)


def _map_argument(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = checked_arguments(translator, call, 1)
    value = translator.translate_expression(node)
    if value.type.name != "Map":
        raise translator.refused_error(
            node, f"A map is wanted here, and this is {value.type.with_article}.", "Write log_attributes."
        )
    return value


def _require_all_attributes(translator: ArgumentTranslator, node: exp.Expr, form: AttributeForm) -> TypedValue:
    attributes = all_attributes(translator.row_scope, form)
    if attributes is None:
        raise translator.refused_error(
            node, "The keys of this map are not known here.", "Ask for them in the query that reads logs."
        )
    return TypedValue(attributes, array_type_of(STRING))


def _translate_map_contains(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate mapContains, which is true if the map has the key, even if the value of the key is an empty text."""
    node, key = checked_arguments(translator, call, 2)
    value = translator.translate_expression(node)
    if value.type.name != "Map":
        raise translator.refused_error(
            node, f"A map is wanted here, and this is {value.type.with_article}.", "Write log_attributes."
        )
    key_text = translator.constant_text(key, "The key of a map")
    if value.map_entries is not None:
        return flag_value(is_true=any(name == key_text for name, _ in value.map_entries))
    if is_json_map(value):
        return TypedValue(internal_call("json_has", value.node, exp.Literal.string(key_text)), FLAG)
    attribute = translator.row_scope.resolve_reference(attribute_reference(key_text))
    if attribute is None:
        raise translator.refused_error(
            node, "The keys of this map are not known here.", "Ask for them in the query that reads logs."
        )
    if attribute.is_constant:
        return flag_value(is_true=False)
    return TypedValue(exp.Not(this=exp.Is(this=attribute.node, expression=exp.Null())), FLAG)


def _translate_array(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    return array_of_values(
        translator,
        call.node,
        [translator.value_with_default_for_null(part) for part in checked_arguments(translator, call, 0, -1)],
    )


def _translate_array_element(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, index_node = checked_arguments(translator, call, 2)
    value = translator.translate_expression(node)
    return (
        map_item(translator, call.node, value, index_node)
        if value.type.name == "Map"
        else array_element(translator, call.node, value, index_node)
    )


def _translate_array_contains(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, element_node = checked_arguments(translator, call, 2)
    array, value = translator.array_value(node), translator.value_with_default_for_null(element_node)
    element_type: ClickHouseType = array.type.element_type or STRING
    type_ = common_type(element_type, value.type)
    if type_ is None:
        raise translator.refused_error(
            element_node, f"{array.type.with_capital_article} has no {value.type}.", "Convert it, as in toString(…)."
        )
    if type_.name == "Float64" and element_type.name != "Float64":
        raise translator.refused_error(
            element_node, f"{array.type.with_capital_article} has no {value.type}.", "Convert it with toInt64(…)."
        )
    unnest = exp.Unnest(expressions=[array.node], offset=False)
    membership: exp.Expr = exp.In(this=convert_to_type(translator, element_node, value, type_), unnest=unnest)
    if value.type.is_nullable:
        # In ClickHouse, an array without NULL does not have NULL. No array has NULL here.
        membership = translator.fill_template(call.node, "coalesce(@membership, false)", membership=membership)
    return TypedValue(membership, FLAG)


def _translate_array_concat(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate arrayConcat of arrays that all have the same type."""
    parts = checked_arguments(translator, call, 1, -1)
    values = [translator.array_value(part) for part in parts]
    for part, value in zip(parts, values, strict=True):
        if value.type != values[0].type:
            raise translator.refused_error(
                part, f"{values[0].type.with_capital_article} and {value.type.with_article} make no array together."
            )
    if len(values) == 1:
        return values[0]
    placeholders = {f"p{index}": value.node for index, value in enumerate(values)}
    concatenated = translator.fill_template(
        call.node, f"array_concat({', '.join('@' + placeholder for placeholder in placeholders)})", **placeholders
    )
    return TypedValue(concatenated, values[0].type)


def _array_template_translator(template: str) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        value = translator.array_value(*checked_arguments(translator, call, 1))
        return TypedValue(translator.fill_template(call.node, template, array=value.node), value.type)

    return translate_call


_SORT_FUNCTION_BY_ELEMENT_TYPE: Final = {
    "String": "sorted_texts",
    "Int64": "sorted_numbers",
    "Float64": "sorted_floats",
}


def _translate_array_sort(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = checked_arguments(translator, call, 1)
    value = translator.array_value(node)
    name = _SORT_FUNCTION_BY_ELEMENT_TYPE.get((value.type.element_type or STRING).name)
    if name is None:
        raise translator.refused_error(node, f"{value.type.with_capital_article} cannot be sorted here.")
    return TypedValue(internal_call(name, value.node), value.type)


def _translate_array_join(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate arrayJoin to an element of its array; the module `select` joins the array to the rows in FROM."""
    joined_element = translator.row_scope.resolve_reference(array_element_reference(call.node))
    if joined_element is None:
        raise translator.refused_error(call.node, "arrayJoin cannot stand here.")
    return joined_element


def _json_translator(name: str, type_: ClickHouseType, default: str | int | None) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, *keys = checked_arguments(translator, call, 1, -1)
        value = translator.string_value(node)
        if isinstance(value.constant_value, str) and name != "json_valid" and not _is_json_text(value.constant_value):
            # Replace a constant that is invalid JSON by null. Engines evaluate a constant when they plan a query, so
            # the invalid JSON would make the whole query fail.
            value = text_value("null")
        path = [_json_key_argument(translator, key) for key in keys]
        extracted = TypedValue(internal_call(name, value.node, *path), type_, default_for_null=default)
        if not value.type.is_nullable or type_.name == "Array":
            return extracted
        parts = {"text": value.node, "extracted": extracted.node_with_default_for_null()}
        filled = translator.fill_template(call.node, "if(@text is null, null, @extracted)", **parts)
        return TypedValue(filled, type_.as_nullable())

    return translate_call


def _is_json_text(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _json_key_argument(translator: ArgumentTranslator, node: exp.Expr) -> exp.Expr:
    """Return a key of a JSON object, or an index of a JSON array counted from 1, as a literal."""
    value = translator.translate_expression(node)
    if isinstance(value.constant_value, str):
        return exp.Literal.string(value.constant_value)
    if isinstance(value.constant_value, int) and value.constant_value > 0:
        return exp.Literal.number(value.constant_value)
    raise translator.refused_error(node, "A key of JSON must be a text in quotes, or a place from 1 on.")


JSON_EXTRACTOR_BY_TYPE: Final[Mapping[str, tuple[str, ClickHouseType, str | int]]] = {
    "String": ("json_string", STRING, ""),
    "Int64": ("json_int", INT, 0),
    "Float64": ("json_float", FLOAT, 0),
}


def _translate_json_extract(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate `JSONExtract(x, 'a', 'Int64')` like `JSONExtractInt(x, 'a')`, and likewise for other types."""
    *parts, type_node = checked_arguments(translator, call, 2, -1)
    type_ = parse_type_name(translator, type_node, translator.constant_text(type_node, "The name of a type"))
    extractor = JSON_EXTRACTOR_BY_TYPE.get(type_.name)
    if extractor is None or type_.is_nullable:
        raise translator.refused_error(
            type_node, f"{type_} is not supported here.", "There are: String, Int64 and its like, and Float64."
        )
    return _json_translator(*extractor)(translator, msgspec.structs.replace(call, arguments=tuple(parts)))


TRANSLATOR_BY_FUNCTION: Final[Mapping[str, _CallTranslator]] = {
    "map": _translate_map,
    "mapkeys": _translate_map_keys,
    "mapvalues": _translate_map_values,
    "mapcontains": _translate_map_contains,
    "mapcontainskey": _translate_map_contains,
    "array": _translate_array,
    "arrayelement": _translate_array_element,
    "arrayconcat": _translate_array_concat,
    "arraysort": _translate_array_sort,
    "arraydistinct": _array_template_translator("array(select distinct e from unnest(@array) as e)"),
    "arrayreverse": _array_template_translator("array_reverse(@array)"),
    "arrayjoin": _translate_array_join,
    "has": _translate_array_contains,
    "jsonextract": _translate_json_extract,
    "jsonextractstring": _json_translator("json_string", STRING, ""),
    "jsonextractraw": _json_translator("json_raw", STRING, ""),
    "jsonextractint": _json_translator("json_int", INT, 0),
    "jsonextractuint": _json_translator("json_uint", INT, 0),
    "jsonextractfloat": _json_translator("json_float", FLOAT, 0),
    "jsonextractbool": _json_translator("json_bool", FLAG, None),
    "jsonhas": _json_translator("json_has", FLAG, None),
    "jsonlength": _json_translator("json_length", INT, 0),
    "jsontype": _json_translator("json_type", STRING, "Null"),
    "isvalidjson": _json_translator("json_valid", FLAG, None),
    "jsonextractkeys": _json_translator("json_keys", array_type_of(STRING), None),
    "jsonextractarrayraw": _json_translator("json_items", array_type_of(STRING), None),
}
