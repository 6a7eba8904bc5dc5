"""Functions of maps, arrays and JSON texts."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.casts import type_named
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions.arguments import arguments
from cordwood.clickhouse_sql.scope import Whole, attribute_need, element_need, whole_of
from cordwood.clickhouse_sql.translate import array_of_values, converted, element, is_json, map_item, unified
from cordwood.clickhouse_sql.values import (
    FLAG,
    FLOAT,
    INT,
    MAP,
    STRING,
    Type,
    Value,
    array_of,
    common,
    flag_value,
    text_value,
)
from cordwood.sql.nodes import internal

_Function = Callable[[Expressions, Call], Value]


def _map(t: Expressions, call: Call) -> Value:
    parts = arguments(t, call, 0, -1)
    if len(parts) % 2:
        raise t.refused(call.node, "map takes pairs of a key and a value.")
    keys = [t.constant_text(key, "The key of a map") for key in parts[::2]]
    if len(set(keys)) < len(keys):
        raise t.refused(call.node, "A map has each key once.")
    values = [t.plain(value) for value in parts[1::2]]
    if values:
        nodes, type_ = unified(t, call.node, values)
        values = [Value(node, type_) for node in nodes]
    return Value(exp.Null(), MAP, parts=tuple(zip(keys, values, strict=True)))


def _keys(t: Expressions, call: Call) -> Value:
    return keys_of_map(t, call.node, _map_argument(t, call))


def keys_of_map(t: Expressions, node: exp.Expr, value: Value) -> Value:
    """Return the keys of a map as an array."""
    if value.parts is not None:
        return Value(exp.Array(expressions=[exp.Literal.string(key) for key, _ in value.parts]), array_of(STRING))
    if is_json(value):
        return Value(internal("json_keys", value.node), array_of(STRING))
    return _whole(t, node, Whole.KEYS)


def _values(t: Expressions, call: Call) -> Value:
    value = _map_argument(t, call)
    if value.parts is not None:
        return array_of_values(t, call.node, [part for _, part in value.parts])
    return _whole(t, call.node, Whole.VALUES)


def _map_argument(t: Expressions, call: Call) -> Value:
    (node,) = arguments(t, call, 1)
    value = t.value(node)
    if value.type.name != "Map":
        raise t.refused(node, f"A map is wanted here, and this is a {value.type}.", "Write log_attributes.")
    return value


def _whole(t: Expressions, node: exp.Expr, whole: Whole) -> Value:
    found = whole_of(t.row, whole)
    if found is None:
        raise t.refused(node, "The keys of this map are not known here.", "Ask for them in the query that reads logs.")
    return Value(found, array_of(STRING))


def _contains(t: Expressions, call: Call) -> Value:
    """Return whether the map has the key: also with an empty text, but not if it is missing."""
    node, key = arguments(t, call, 2)
    value = t.value(node)
    if value.type.name != "Map":
        raise t.refused(node, f"A map is wanted here, and this is a {value.type}.", "Write log_attributes.")
    wanted = t.constant_text(key, "The key of a map")
    if value.parts is not None:
        return flag_value(is_true=any(name == wanted for name, _ in value.parts))
    if is_json(value):
        return Value(internal("json_has", value.node, exp.Literal.string(wanted)), FLAG)
    found = t.row.value(attribute_need(wanted))
    if found is None:
        raise t.refused(node, "The keys of this map are not known here.", "Ask for them in the query that reads logs.")
    if found.is_constant:
        return flag_value(is_true=False)
    return Value(exp.Not(this=exp.Is(this=found.node, expression=exp.Null())), FLAG)


def _array(t: Expressions, call: Call) -> Value:
    return array_of_values(t, call.node, [t.plain(part) for part in arguments(t, call, 0, -1)])


def _array_element(t: Expressions, call: Call) -> Value:
    node, place = arguments(t, call, 2)
    value = t.value(node)
    return map_item(t, call.node, value, place) if value.type.name == "Map" else element(t, call.node, value, place)


def _has(t: Expressions, call: Call) -> Value:
    node, wanted = arguments(t, call, 2)
    array, value = t.array(node), t.plain(wanted)
    inner: Type = array.type.element or STRING
    type_ = common(inner, value.type)
    if type_ is None or value.type.name == "Nothing":
        raise t.refused(wanted, f"A {array.type} has no {value.type}.", "Convert it, as in toString(…).")
    if type_.name == "Float64" and inner.name != "Float64":
        raise t.refused(wanted, f"A {array.type} has no {value.type}.", "Convert it with toInt64(…).")
    unnest = exp.Unnest(expressions=[array.node], offset=False)
    made = exp.In(this=converted(t, wanted, value, type_), unnest=unnest)
    return Value(made, msgspec.structs.replace(FLAG, nullable=value.type.nullable))


def _array_concat(t: Expressions, call: Call) -> Value:
    """Concatenate arrays of one type."""
    parts = arguments(t, call, 1, -1)
    values = [t.array(part) for part in parts]
    for part, value in zip(parts, values, strict=True):
        if value.type != values[0].type:
            raise t.refused(part, f"A {values[0].type} and a {value.type} make no array together.")
    if len(values) == 1:
        return values[0]
    holes = {f"p{at}": value.node for at, value in enumerate(values)}
    made = t.fill(call.node, f"array_concat({', '.join('@' + hole for hole in holes)})", **holes)
    return Value(made, values[0].type)


def _of_array(template: str) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        value = t.array(*arguments(t, call, 1))
        return Value(t.fill(call.node, template, array=value.node), value.type)

    return function


_SORTED: Final = {"String": "sorted_texts", "Int64": "sorted_numbers", "Float64": "sorted_floats"}


def _array_sort(t: Expressions, call: Call) -> Value:
    (node,) = arguments(t, call, 1)
    value = t.array(node)
    name = _SORTED.get((value.type.element or STRING).name)
    if name is None:
        raise t.refused(node, f"A {value.type} cannot be sorted here.")
    return Value(internal(name, value.node), value.type)


def _array_join(t: Expressions, call: Call) -> Value:
    """Return the element of an array that `select` has added to FROM."""
    found = t.row.value(element_need(call.node))
    if found is None:
        raise t.refused(call.node, "arrayJoin cannot stand here.")
    return found


def _json(name: str, type_: Type, default: str | int | None) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        node, *keys = arguments(t, call, 1, -1)
        value = t.string(node)
        if isinstance(value.constant, str) and name != "json_valid" and not _is_json_text(value.constant):
            # Engines evaluate a constant at compile time, so invalid JSON would fail the whole query.
            value = text_value("null")
        path = [_json_key(t, key) for key in keys]
        made = internal(name, value.node, *path)
        return Value(made, type_, default=default)

    return function


def _is_json_text(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _json_key(t: Expressions, node: exp.Expr) -> exp.Expr:
    """Return a key, or an array index from 1."""
    value = t.value(node)
    if isinstance(value.constant, str):
        return exp.Literal.string(value.constant)
    if isinstance(value.constant, int) and value.constant > 0:
        return exp.Literal.number(value.constant)
    raise t.refused(node, "A key of JSON must be a text in quotes, or a place from 1 on.")


_EXTRACTED: Final[Mapping[str, tuple[str, Type, str | int]]] = {
    "String": ("json_string", STRING, ""),
    "Int64": ("json_int", INT, 0),
    "Float64": ("json_float", FLOAT, 0),
}


def _json_extract(t: Expressions, call: Call) -> Value:
    """Return `JSONExtract(x, 'a', 'Int64')` as JSONExtractInt(x, 'a')."""
    *parts, named = arguments(t, call, 2, -1)
    type_ = type_named(t, named, t.constant_text(named, "The name of a type"))
    found = _EXTRACTED.get(type_.name)
    if found is None or type_.nullable:
        raise t.refused(named, f"{type_} is not supported here.", "There are: String, Int64 and its like, and Float64.")
    return _json(*found)(t, msgspec.structs.replace(call, arguments=tuple(parts)))


FUNCTIONS: Final[Mapping[str, _Function]] = {
    "map": _map,
    "mapkeys": _keys,
    "mapvalues": _values,
    "mapcontains": _contains,
    "mapcontainskey": _contains,
    "array": _array,
    "arrayelement": _array_element,
    "arrayconcat": _array_concat,
    "arraysort": _array_sort,
    "arraydistinct": _of_array("array(select distinct e from unnest(@array) as e)"),
    "arrayreverse": _of_array("array_reverse(@array)"),
    "arrayjoin": _array_join,
    "has": _has,
    "jsonextract": _json_extract,
    "jsonextractstring": _json("json_string", STRING, ""),
    "jsonextractraw": _json("json_raw", STRING, ""),
    "jsonextractint": _json("json_int", INT, 0),
    "jsonextractuint": _json("json_uint", INT, 0),
    "jsonextractfloat": _json("json_float", FLOAT, 0),
    "jsonextractbool": _json("json_bool", FLAG, None),
    "jsonhas": _json("json_has", FLAG, None),
    "jsonlength": _json("json_length", INT, 0),
    "jsontype": _json("json_type", STRING, "Null"),
    "isvalidjson": _json("json_valid", FLAG, None),
    "jsonextractkeys": _json("json_keys", array_of(STRING), None),
    "jsonextractarrayraw": _json("json_items", array_of(STRING), None),
}
