"""ClickHouse's words of the vocabulary from which the rules that all engines share are composed."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    cast,
    fail_if,
    null_of,
    once,
    utc_wall_clock,
)
from cordwood.engines.clickhouse.rules.coercions import read_as, wall_clock
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import kind_of
from cordwood.sql.fragment import fragment
from cordwood.sql.rules.vocabulary import Vocabulary, Word3


def _attempt(node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill the template: ClickHouse has no general TRY."""
    del node
    return once(template, *parts, texts=texts)


def conditional(condition: str, then: str, otherwise: str = "NULL") -> str:
    return f"if({condition}, {then}, {otherwise})"


def _bracketed(array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
    texts = f"arrayStringConcat(arrayMap({name} -> {{1}}, {{0}}), '{separator}')"
    return fragment(f"concat('[', {texts}, ']')", array, element_text)


def _escaped(text: str) -> str:
    """Return a pattern or replacement as the content of a literal."""
    return text.replace("\\", "\\\\")


def _replace(function: str) -> Word3:
    return lambda text, pattern, new: f"{function}({text}, '{_escaped(pattern)}', '{_escaped(new)}')"


def json_document(value: exp.Expr) -> exp.Expr:
    """Return a value as a JSON document; a text that is not JSON is NULL."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT):
        return value
    return once("if(isValidJSON(@a), @a, NULL)", value)


WORDS: Final = Vocabulary(
    once=once,
    attempt=_attempt,
    null_of=null_of,
    read_as=read_as,
    cast=cast,
    wall_clock=wall_clock,
    utc_wall_clock=utc_wall_clock,
    json_document=json_document,
    fail_if=fail_if,
    conditional=conditional,
    is_missing="isNull({})".format,
    is_present="isNotNull({})".format,
    or_else="ifNull({}, {})".format,
    concat=lambda *texts: f"concat({', '.join(texts)})",
    as_text="toString({})".format,
    as_integer="toInt64({})".format,
    as_float="toFloat64({})".format,
    matches=lambda text, pattern: f"match({text}, '^{_escaped(pattern)}$')",
    extract=lambda text, pattern: f"extract({text}, '{_escaped(pattern)}')",
    replace_first=_replace("replaceRegexpOne"),
    replace_all=_replace("replaceRegexpAll"),
    with_value="arrayMap({1} -> {2}, [{0}])[1]".format,
    bracketed=_bracketed,
    field="tupleElement({}, {})".format,
    nan="nan",
    is_finite="isFinite({})".format,
    is_infinite="isInfinite({})".format,
    is_nan="isNaN({})".format,
    quotient="intDiv({}, {})".format,
    micros="toUnixTimestamp64Micro({})".format,
    moment_of="fromUnixTimestamp64Micro({}, 'UTC')".format,
)
