"""JSON Schema types as short English phrases."""

from collections.abc import Mapping
from typing import Any

Node = Mapping[str, Any]


def type_in_words(document: Node, schema: Node) -> str:
    """Return a phrase such as: integer or null; text, one of: a, b; list of event."""
    reference = schema.get("$ref")
    if reference is not None:
        return str(reference).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(type_in_words(document, one) for one in schema["anyOf"])
    types = schema.get("type", "anything")
    words = " or ".join(_one_type(document, schema, one) for one in ([types] if isinstance(types, str) else types))
    return words + _format(schema) + _bounds(schema)


def _one_type(document: Node, schema: Node, name: str) -> str:
    if name == "array" and "items" in schema:
        return f"list of {type_in_words(document, schema['items'])}"
    return {"string": "text", "array": "list", "object": "object"}.get(name, name)


def _format(schema: Node) -> str:
    format_ = schema.get("format")
    return "" if format_ in (None, "int64") else f" ({format_})"


def _bounds(schema: Node) -> str:
    told = ""
    if schema.get("enum"):
        told += ", one of: " + ", ".join(str(one) for one in schema["enum"])
    if "minimum" in schema and "maximum" in schema:
        told += f" from {schema['minimum']} to {schema['maximum']}"
    if schema.get("default") is not None:
        told += f", {schema['default']} if left out"
    return told
