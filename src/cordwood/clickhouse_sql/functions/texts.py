"""Translators of ClickHouse's string functions."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall, checked_arguments
from cordwood.clickhouse_sql.casts import to_text
from cordwood.clickhouse_sql.functions.maps_and_arrays import keys_of_map
from cordwood.clickhouse_sql.values import FLAG, INT, STRING, ClickHouseType, TypedValue, array_type_of, literal_node
from cordwood.sql.nodes import internal_call
from cordwood.sql.rules.strings import may_match_empty_text

_CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]

# With this flag, a dot in a regular expression matches any character, including line ends, as it does in ClickHouse.
_DOT_MATCHES_NEWLINE_FLAG: Final = "(?s)"
_CAPTURING_GROUP_PATTERN: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*+(?:\]|\\?\Z)|\((?!\?)", re.DOTALL)


def _copy_nullability(type_: ClickHouseType, *values: TypedValue) -> ClickHouseType:
    return msgspec.structs.replace(type_, is_nullable=any(value.type.is_nullable for value in values))


def _template_translator(
    template: str, type_: ClickHouseType, minimum: int = 1, maximum: int | None = None
) -> _CallTranslator:
    """Return the translator of a function whose arguments are texts; `template` is BigQuery SQL over @a, @b and @c."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        values = [translator.string_value(part) for part in checked_arguments(translator, call, minimum, maximum)]
        parts = {letter: value.node for letter, value in zip("abc", values, strict=False)}
        return TypedValue(translator.fill_template(call.node, template, **parts), _copy_nullability(type_, *values))

    return translate_call


def _internal_function_translator(name: str) -> _CallTranslator:
    """Return the translator of a function of one text that BigQuery lacks; it calls the internal function `name`."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        value = translator.string_value(*checked_arguments(translator, call, 1))
        return TypedValue(internal_call(name, value.node), value.type)

    return translate_call


def _translate_concat(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    values = [
        to_text(translator, part, translator.value_with_default_for_null(part))
        for part in checked_arguments(translator, call, 1, -1)
    ]
    concatenated = exp.Concat(expressions=[value.node for value in values])
    concatenated.meta["bigquery_name"] = "CONCAT"
    return TypedValue(concatenated, _copy_nullability(STRING, *values))


def regex_pattern_of(translator: ArgumentTranslator, node: exp.Expr) -> str:
    """Return a constant regular expression, with the flag by which a dot also matches line ends."""
    return _DOT_MATCHES_NEWLINE_FLAG + translator.constant_text(node, "A regular expression")


def _translate_match(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, pattern = checked_arguments(translator, call, 2)
    value = translator.string_value(node)
    parts = {"text": value.node, "pattern": exp.Literal.string(regex_pattern_of(translator, pattern))}
    return TypedValue(
        translator.fill_template(call.node, "regexp_contains(@text, @pattern)", **parts), _copy_nullability(FLAG, value)
    )


def _translate_extract(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate extract, which returns the first group of the match, or the whole match if there is no group.

    If the pattern does not match, the result is an empty text.
    """
    node, pattern = checked_arguments(translator, call, 2)
    value = translator.string_value(node)
    first_group_pattern = exp.Literal.string(_keep_first_capturing_group(regex_pattern_of(translator, pattern)))
    extracted = translator.fill_template(
        call.node, "regexp_extract(@text, @pattern)", text=value.node, pattern=first_group_pattern
    )
    if not value.type.is_nullable:
        return TypedValue(extracted, STRING, default_for_null="")
    parts = {"text": value.node, "extracted": extracted}
    return TypedValue(
        translator.fill_template(call.node, "if(@text is null, null, coalesce(@extracted, ''))", **parts), value.type
    )


def _translate_extract_all(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, pattern = checked_arguments(translator, call, 2)
    first_group_pattern = exp.Literal.string(_keep_first_capturing_group(regex_pattern_of(translator, pattern)))
    parts = {"text": _text_with_default_for_null(translator, node).node, "pattern": first_group_pattern}
    return TypedValue(
        translator.fill_template(call.node, "regexp_extract_all(@text, @pattern)", **parts), array_type_of(STRING)
    )


def _keep_first_capturing_group(pattern: str) -> str:
    """Return the pattern with its first capturing group; all later capturing groups are made non-capturing."""
    group_count = 0

    def rewrite(match: re.Match[str]) -> str:
        nonlocal group_count
        if match[0] != "(":
            return match[0]
        group_count += 1
        return "(" if group_count == 1 else "(?:"

    return _CAPTURING_GROUP_PATTERN.sub(rewrite, pattern)


def _translate_replace_regexp(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, pattern, replacement = checked_arguments(translator, call, 3)
    value, replacement_value = translator.string_value(node), translator.string_value(replacement)
    pattern_text = regex_pattern_of(translator, pattern)
    if may_match_empty_text(pattern_text):
        raise translator.refused_error(
            pattern, "A pattern that may match the empty text is not supported here.", "Write + for *."
        )
    parts = {"text": value.node, "pattern": exp.Literal.string(pattern_text), "by": replacement_value.node}
    return TypedValue(
        translator.fill_template(call.node, "regexp_replace(@text, @pattern, @by)", **parts),
        _copy_nullability(STRING, value, replacement_value),
    )


def _position_translator(*, ignores_case: bool) -> _CallTranslator:
    """Return the translator of a function for the position of a substring in bytes, from 1 on; 0 if it does not occur.

    With `ignores_case`, upper and lower case of the letters A to Z are equal.
    """

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, part = checked_arguments(translator, call, 2)
        value, searched = translator.string_value(node), translator.string_value(part)
        parts = {"a": value.node, "b": searched.node}
        if ignores_case:
            parts = {letter: internal_call("lower", part) for letter, part in parts.items()}
        position = translator.fill_template(call.node, "strpos(cast(@a as bytes), cast(@b as bytes))", **parts)
        return TypedValue(position, _copy_nullability(INT, value, searched))

    return translate_call


def _translate_length(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = checked_arguments(translator, call, 1)
    value = translator.value_with_default_for_null(node)
    if value.type.name == "Map":
        value = keys_of_map(translator, node, value)
    if value.type.name == "Array":
        return TypedValue(translator.fill_template(call.node, "array_length(@array)", array=value.node), INT)
    return _template_translator("byte_length(@a)", INT)(translator, call)


def _emptiness_test_translator(sign: str) -> _CallTranslator:
    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        (node,) = checked_arguments(translator, call, 1)
        value = translator.value_with_default_for_null(node)
        if value.type.name == "Map":
            value = keys_of_map(translator, node, value)
        if value.type.name == "Array":
            return TypedValue(
                translator.fill_template(call.node, f"array_length(@array) {sign} 0", array=value.node), FLAG
            )
        value = translator.string_value(node)
        return TypedValue(
            translator.fill_template(call.node, f"@text {sign} ''", text=value.node), _copy_nullability(FLAG, value)
        )

    return translate_call


def _translate_substring(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    """Translate substring, whose position and length are numbers of characters.

    The position is counted from 1, or from the end if it is negative.
    """
    node, start, *length_nodes = checked_arguments(translator, call, 2, 3)
    value, start_value = translator.string_value(node), translator.number_value(start)
    count = translator.number_value(length_nodes[0]) if length_nodes else None
    if isinstance(start_value.constant_value, (int, float)) and start_value.constant_value <= 0:
        if start_value.constant_value == 0:
            return TypedValue(
                translator.fill_template(call.node, "substr(@text, 1, 0)", text=value.node),
                _copy_nullability(STRING, value),
            )
        if count is not None:
            hint = "Write left(right(x, 5), 3), or a place from the front."
            raise translator.refused_error(start, "A place from the end with a length is not supported.", hint)
    if count is not None and isinstance(count.constant_value, (int, float)) and count.constant_value < 0:
        value, count = _drop_last_characters(translator, call, value, int(-count.constant_value)), None
    if count is None:
        return TypedValue(
            translator.fill_template(call.node, "substr(@text, @start)", text=value.node, start=start_value.node),
            _copy_nullability(STRING, value, start_value),
        )
    substring = translator.fill_template(
        call.node,
        "substr(@text, @start, greatest(@count, 0))",
        text=value.node,
        start=start_value.node,
        count=count.node,
    )
    return TypedValue(substring, _copy_nullability(STRING, value, start_value, count))


def _drop_last_characters(
    translator: ArgumentTranslator, call: FunctionCall, value: TypedValue, count: int
) -> TypedValue:
    """Return the text without its last `count` characters."""
    start = literal_node(count + 1)
    return TypedValue(
        translator.fill_template(call.node, "reverse(substr(reverse(@text), @start))", text=value.node, start=start),
        value.type,
    )


def _left_or_right_translator(name: str) -> _CallTranslator:
    """Return the translator of left or right, which returns the first or the last characters of a text.

    A negative number is the number of characters that are removed at the other end of the text.
    """

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, count = checked_arguments(translator, call, 2)
        value, length = translator.string_value(node), translator.number_value(count)
        if isinstance(length.constant_value, (int, float)) and length.constant_value < 0:
            if name == "left":
                return _drop_last_characters(translator, call, value, int(-length.constant_value))
            start = literal_node(int(1 - length.constant_value))
            return TypedValue(
                translator.fill_template(call.node, "substr(@text, @start)", text=value.node, start=start), value.type
            )
        part = translator.fill_template(
            call.node, f"{name}(@text, greatest(@count, 0))", text=value.node, count=length.node
        )
        return TypedValue(part, _copy_nullability(STRING, value, length))

    return translate_call


def _translate_split(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    separator, node = checked_arguments(translator, call, 2)
    separator_text = translator.constant_text(separator, "A separator")
    parts = {"text": _text_with_default_for_null(translator, node).node, "by": exp.Literal.string(separator_text)}
    return TypedValue(translator.fill_template(call.node, "split(@text, @by)", **parts), array_type_of(STRING))


def _text_with_default_for_null(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    """Return the value of an argument that must be a text; NULL is replaced by an empty text.

    ClickHouse has no NULL arrays. Therefore, its functions that return arrays treat NULL as an empty text.
    """
    value = translator.string_value(node)
    if not value.type.is_nullable:
        return value
    return TypedValue(translator.fill_template(node, "coalesce(@text, '')", text=value.node), STRING)


def _trim_translator(name: str) -> _CallTranslator:
    """Return the translator of a function that removes characters, by default spaces, from the ends of a text."""

    def translate_call(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
        node, *rest = checked_arguments(translator, call, 1, 2)
        characters = translator.constant_text(rest[0], "The characters to trim") if rest else " "
        value = translator.string_value(node)
        parts = {"text": value.node, "characters": exp.Literal.string(characters)}
        return TypedValue(translator.fill_template(call.node, f"{name}(@text, @characters)", **parts), value.type)

    return translate_call


def _translate_reverse(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    (node,) = checked_arguments(translator, call, 1)
    value = translator.value_with_default_for_null(node)
    if value.type.name == "Array":
        return TypedValue(translator.fill_template(call.node, "array_reverse(@array)", array=value.node), value.type)
    return _template_translator("reverse(@a)", STRING)(translator, call)


def _translate_join(translator: ArgumentTranslator, call: FunctionCall) -> TypedValue:
    node, *rest = checked_arguments(translator, call, 1, 2)
    value = translator.array_value(node)
    if value.type.element_type != STRING:
        raise translator.refused_error(
            node, f"An array of texts is wanted here, and this is {value.type.with_article}."
        )
    separator = translator.constant_text(rest[0], "A separator") if rest else ""
    joined = translator.fill_template(
        call.node, "array_to_string(@array, @by)", array=value.node, by=exp.Literal.string(separator)
    )
    return TypedValue(joined, STRING)


TRANSLATOR_BY_FUNCTION: Final[Mapping[str, _CallTranslator]] = {
    "lower": _internal_function_translator("lower"),
    "upper": _internal_function_translator("upper"),
    "lowerutf8": _template_translator("lower(@a)", STRING),
    "upperutf8": _template_translator("upper(@a)", STRING),
    "trim": _trim_translator("trim"),
    "trimboth": _trim_translator("trim"),
    "trimleft": _trim_translator("ltrim"),
    "ltrim": _trim_translator("ltrim"),
    "trimright": _trim_translator("rtrim"),
    "rtrim": _trim_translator("rtrim"),
    "startswith": _template_translator("starts_with(@a, @b)", FLAG, 2),
    "endswith": _template_translator("ends_with(@a, @b)", FLAG, 2),
    "replace": _template_translator("replace(@a, @b, @c)", STRING, 3),
    "replaceall": _template_translator("replace(@a, @b, @c)", STRING, 3),
    "replaceregexpall": _translate_replace_regexp,
    "reverse": _translate_reverse,
    "lengthutf8": _template_translator("char_length(@a)", INT),
    "length": _translate_length,
    "empty": _emptiness_test_translator("="),
    "notempty": _emptiness_test_translator("<>"),
    "concat": _translate_concat,
    "match": _translate_match,
    "extract": _translate_extract,
    "extractall": _translate_extract_all,
    "position": _position_translator(ignores_case=False),
    "positioncaseinsensitive": _position_translator(ignores_case=True),
    "substring": _translate_substring,
    "substr": _translate_substring,
    "substringutf8": _translate_substring,
    "left": _left_or_right_translator("left"),
    "right": _left_or_right_translator("right"),
    "splitbychar": _translate_split,
    "splitbystring": _translate_split,
    "arraystringconcat": _translate_join,
}
