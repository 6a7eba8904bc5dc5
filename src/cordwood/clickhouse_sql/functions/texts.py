"""String functions."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.casts import to_text
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions.arguments import arguments
from cordwood.clickhouse_sql.functions.structure import keys_of_map
from cordwood.clickhouse_sql.values import FLAG, INT, STRING, Type, Value, array_of, literal_node
from cordwood.sql.bigquery.patterns import may_be_empty
from cordwood.sql.nodes import internal

_Function = Callable[[Expressions, Call], Value]

# In ClickHouse's regular expressions a dot matches any character, also a line end.
_DOT_IS_ANY: Final = "(?s)"
_GROUP: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?)", re.DOTALL)


def _nullable(type_: Type, *values: Value) -> Type:
    return msgspec.structs.replace(type_, nullable=any(value.type.nullable for value in values))


def _templated(template: str, type_: Type, least: int = 1, most: int | None = None) -> _Function:
    """Return a function of texts, as a template of @a, @b and so on."""

    def function(t: Expressions, call: Call) -> Value:
        values = [t.string(part) for part in arguments(t, call, least, most)]
        parts = {letter: value.node for letter, value in zip("abc", values, strict=False)}
        return Value(t.fill(call.node, template, **parts), _nullable(type_, *values))

    return function


def _own(name: str) -> _Function:
    """Return a function of one text that BigQuery does not have."""

    def function(t: Expressions, call: Call) -> Value:
        value = t.string(*arguments(t, call, 1))
        return Value(internal(name, value.node), value.type)

    return function


def _concat(t: Expressions, call: Call) -> Value:
    values = [to_text(t.plain(part)) for part in arguments(t, call, 1, -1)]
    made = exp.Concat(expressions=[value.node for value in values])
    made.meta["bigquery_name"] = "CONCAT"
    return Value(made, _nullable(STRING, *values))


def pattern_of(t: Expressions, node: exp.Expr) -> str:
    """Return a constant regular expression, in which a dot also matches line ends."""
    return _DOT_IS_ANY + t.constant_text(node, "A regular expression")


def _match(t: Expressions, call: Call) -> Value:
    node, pattern = arguments(t, call, 2)
    value = t.string(node)
    parts = {"text": value.node, "pattern": exp.Literal.string(pattern_of(t, pattern))}
    return Value(t.fill(call.node, "regexp_contains(@text, @pattern)", **parts), _nullable(FLAG, value))


def _extract(t: Expressions, call: Call) -> Value:
    """Return the match of the first group, or the whole match; an empty text without a match."""
    node, pattern = arguments(t, call, 2)
    value = t.string(node)
    one_group = exp.Literal.string(_with_one_group(pattern_of(t, pattern)))
    made = t.fill(call.node, "regexp_extract(@text, @pattern)", text=value.node, pattern=one_group)
    return Value(made, value.type) if value.type.nullable else Value(made, STRING, default="")


def _extract_all(t: Expressions, call: Call) -> Value:
    node, pattern = arguments(t, call, 2)
    one_group = exp.Literal.string(_with_one_group(pattern_of(t, pattern)))
    made = t.fill(call.node, "regexp_extract_all(@text, @pattern)", text=t.string(node).node, pattern=one_group)
    return Value(made, array_of(STRING))


def _with_one_group(pattern: str) -> str:
    """Return the pattern with all groups after the first made non-capturing."""
    seen = 0

    def rewritten(found: re.Match[str]) -> str:
        nonlocal seen
        if found[0] != "(":
            return found[0]
        seen += 1
        return "(" if seen == 1 else "(?:"

    return _GROUP.sub(rewritten, pattern)


def _replace_regex(t: Expressions, call: Call) -> Value:
    node, pattern, replacement = arguments(t, call, 3)
    value, by = t.string(node), t.string(replacement)
    wanted = pattern_of(t, pattern)
    if may_be_empty(wanted):
        raise t.refused(pattern, "A pattern that may match the empty text is not supported here.", "Write + for *.")
    parts = {"text": value.node, "pattern": exp.Literal.string(wanted), "by": by.node}
    return Value(t.fill(call.node, "regexp_replace(@text, @pattern, @by)", **parts), _nullable(STRING, value, by))


def _position(*, ignores_case: bool) -> _Function:
    """Return the position in bytes of a substring, from 1; 0 if it is not found.

    `ignores_case` applies to A to Z.
    """

    def function(t: Expressions, call: Call) -> Value:
        node, part = arguments(t, call, 2)
        value, wanted = t.string(node), t.string(part)
        parts = {"a": value.node, "b": wanted.node}
        if ignores_case:
            parts = {letter: internal("lower", part) for letter, part in parts.items()}
        made = t.fill(call.node, "strpos(cast(@a as bytes), cast(@b as bytes))", **parts)
        return Value(made, _nullable(INT, value, wanted))

    return function


def _length(t: Expressions, call: Call) -> Value:
    (node,) = arguments(t, call, 1)
    value = t.plain(node)
    if value.type.name == "Map":
        value = keys_of_map(t, node, value)
    if value.type.name == "Array":
        return Value(t.fill(call.node, "array_length(@array)", array=value.node), INT)
    return _templated("byte_length(@a)", INT)(t, call)


def _is_empty(sign: str) -> _Function:
    def function(t: Expressions, call: Call) -> Value:
        (node,) = arguments(t, call, 1)
        value = t.plain(node)
        if value.type.name == "Map":
            value = keys_of_map(t, node, value)
        if value.type.name == "Array":
            return Value(t.fill(call.node, f"array_length(@array) {sign} 0", array=value.node), FLAG)
        value = t.string(node)
        return Value(t.fill(call.node, f"@text {sign} ''", text=value.node), _nullable(FLAG, value))

    return function


def _substring(t: Expressions, call: Call) -> Value:
    """Return a substring by characters, from a position counted from 1, or from the end if it is negative."""
    node, start, *rest = arguments(t, call, 2, 3)
    value, at = t.string(node), t.number(start)
    count = t.number(rest[0]) if rest else None
    if isinstance(at.constant, (int, float)) and at.constant <= 0:
        if at.constant == 0:
            return Value(t.fill(call.node, "substr(@text, 1, 0)", text=value.node), _nullable(STRING, value))
        if count is not None:
            hint = "Write left(right(x, 5), 3), or a place from the front."
            raise t.refused(start, "A place from the end with a length is not supported.", hint)
    if count is not None and isinstance(count.constant, (int, float)) and count.constant < 0:
        value, count = _without_end(t, call, value, int(-count.constant)), None
    if count is None:
        return Value(
            t.fill(call.node, "substr(@text, @at)", text=value.node, offset=at.node), _nullable(STRING, value, at)
        )
    made = t.fill(
        call.node, "substr(@text, @at, greatest(@count, 0))", text=value.node, offset=at.node, count=count.node
    )
    return Value(made, _nullable(STRING, value, at, count))


def _without_end(t: Expressions, call: Call, value: Value, count: int) -> Value:
    """Return the text without its last characters."""
    at = literal_node(count + 1)
    return Value(t.fill(call.node, "reverse(substr(reverse(@text), @at))", text=value.node, offset=at), value.type)


def _side(name: str) -> _Function:
    """Return a function for so many characters; a negative number omits as many of the other end."""

    def function(t: Expressions, call: Call) -> Value:
        node, count = arguments(t, call, 2)
        value, wanted = t.string(node), t.number(count)
        if isinstance(wanted.constant, (int, float)) and wanted.constant < 0:
            if name == "left":
                return _without_end(t, call, value, int(-wanted.constant))
            start = literal_node(int(1 - wanted.constant))
            return Value(t.fill(call.node, "substr(@text, @at)", text=value.node, offset=start), value.type)
        made = t.fill(call.node, f"{name}(@text, greatest(@count, 0))", text=value.node, count=wanted.node)
        return Value(made, _nullable(STRING, value, wanted))

    return function


def _split(t: Expressions, call: Call) -> Value:
    separator, node = arguments(t, call, 2)
    wanted = t.constant_text(separator, "A separator")
    parts = {"text": t.string(node).node, "by": exp.Literal.string(wanted)}
    return Value(t.fill(call.node, "split(@text, @by)", **parts), array_of(STRING))


def _trim(name: str) -> _Function:
    """Return a function that removes these characters, by default spaces."""

    def function(t: Expressions, call: Call) -> Value:
        node, *rest = arguments(t, call, 1, 2)
        characters = t.constant_text(rest[0], "The characters to trim") if rest else " "
        value = t.string(node)
        parts = {"text": value.node, "characters": exp.Literal.string(characters)}
        return Value(t.fill(call.node, f"{name}(@text, @characters)", **parts), value.type)

    return function


def _reverse(t: Expressions, call: Call) -> Value:
    (node,) = arguments(t, call, 1)
    value = t.plain(node)
    if value.type.name == "Array":
        return Value(t.fill(call.node, "array_reverse(@array)", array=value.node), value.type)
    return _templated("reverse(@a)", STRING)(t, call)


def _join(t: Expressions, call: Call) -> Value:
    node, *rest = arguments(t, call, 1, 2)
    value = t.array(node)
    if value.type.element != STRING:
        raise t.refused(node, f"An array of texts is wanted here, and this is a {value.type}.")
    by = t.constant_text(rest[0], "A separator") if rest else ""
    made = t.fill(call.node, "array_to_string(@array, @by)", array=value.node, by=exp.Literal.string(by))
    return Value(made, STRING)


FUNCTIONS: Final[Mapping[str, _Function]] = {
    "lower": _own("lower"),
    "upper": _own("upper"),
    "lowerutf8": _templated("lower(@a)", STRING),
    "upperutf8": _templated("upper(@a)", STRING),
    "trim": _trim("trim"),
    "trimboth": _trim("trim"),
    "trimleft": _trim("ltrim"),
    "ltrim": _trim("ltrim"),
    "trimright": _trim("rtrim"),
    "rtrim": _trim("rtrim"),
    "startswith": _templated("starts_with(@a, @b)", FLAG, 2),
    "endswith": _templated("ends_with(@a, @b)", FLAG, 2),
    "replace": _templated("replace(@a, @b, @c)", STRING, 3),
    "replaceall": _templated("replace(@a, @b, @c)", STRING, 3),
    "replaceregexpall": _replace_regex,
    "reverse": _reverse,
    "lengthutf8": _templated("char_length(@a)", INT),
    "length": _length,
    "empty": _is_empty("="),
    "notempty": _is_empty("<>"),
    "concat": _concat,
    "match": _match,
    "extract": _extract,
    "extractall": _extract_all,
    "position": _position(ignores_case=False),
    "positioncaseinsensitive": _position(ignores_case=True),
    "substring": _substring,
    "substr": _substring,
    "substringutf8": _substring,
    "left": _side("left"),
    "right": _side("right"),
    "splitbychar": _split,
    "splitbystring": _split,
    "arraystringconcat": _join,
}
