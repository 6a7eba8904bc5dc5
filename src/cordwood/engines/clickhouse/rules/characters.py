"""Functions of characters: code points, TRANSLATE and INITCAP."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    fail_if,
    null_of,
    once,
)
from cordwood.engines.clickhouse.rules.strings import as_text, is_bytes
from cordwood.sql.bigquery.strings import has_duplicate_characters, source_and_target
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.typing.datatypes import STRING


def _characters(value: str) -> str:
    return f"arrayMap(_i -> substringUTF8({value}, _i, 1), range(1, lengthUTF8({value}) + 1))"


def _code_of(character: str) -> str:
    byte = f"toInt64(reinterpretAsUInt8(substring({character}, %d, 1)))"
    first, second, third, fourth = (byte % index for index in range(1, 5))
    continuation = f"({second} - 128)", f"({third} - 128)", f"({fourth} - 128)"
    return (
        f"multiIf({first} < 128, {first}, {first} < 224, ({first} - 192) * 64 + {continuation[0]},"
        f" {first} < 240, ({first} - 224) * 4096 + {continuation[0]} * 64 + {continuation[1]},"
        f" ({first} - 240) * 262144 + {continuation[0]} * 4096 + {continuation[1]} * 64 + {continuation[2]})"
    )


def _code_points(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    if is_bytes(value):
        characters = "arrayMap(_i -> substring(assumeNotNull(@a), _i, 1), range(1, length(assumeNotNull(@a)) + 1))"
        return once(f"if(isNull(@a), [], arrayMap(_c -> toInt64(reinterpretAsUInt8(_c)), {characters}))", value)
    return once(f"if(isNull(@a), [], arrayMap(_c -> {_code_of('_c')}, {_characters('assumeNotNull(@a)')}))", value)


def _character_of(code: str) -> str:
    def tail(shift: int) -> str:
        return f"char(128 + bitAnd(bitShiftRight({code}, {shift}), 63))"

    return (
        f"multiIf({code} < 128, char({code}), {code} < 2048, concat(char(192 + bitShiftRight({code}, 6)), {tail(0)}),"
        f" {code} < 65536, concat(char(224 + bitShiftRight({code}, 12)), {tail(6)}, {tail(0)}),"
        f" concat(char(240 + bitShiftRight({code}, 18)), {tail(12)}, {tail(6)}, {tail(0)}))"
    )


def _from_code_points(node: exp.Expr) -> exp.Expr:
    is_invalid = "arrayExists(_c -> ifNull(_c < 0 OR _c > 1114111 OR _c BETWEEN 55296 AND 57343, false), @a)"
    return _from_codes(node, is_invalid, "Invalid codepoint", _character_of("_c"))


def _bytes_from_code_points(node: exp.Expr) -> exp.Expr:
    is_invalid = "arrayExists(_c -> ifNull(_c < 0 OR _c > 255, false), @a)"
    return _from_codes(node, is_invalid, "Invalid extended ASCII code point", "char(_c)")


def _from_codes(node: exp.Expr, is_invalid: str, message: str, character: str) -> exp.Expr:
    characters = f"arrayMap(_c -> {character}, arrayMap(_c -> assumeNotNull(_c), @a))"
    body = f"if(arrayExists(_c -> isNull(_c), @a), NULL, arrayStringConcat({characters}))"
    return once(fail_if(node, is_invalid, message, body), node.this)


def _first_code(node: exp.Expr) -> exp.Expr:
    if is_bytes(node.this):
        return once("if(isNull(@a), NULL, toInt64(reinterpretAsUInt8(substring(@a, 1, 1))))", node.this)
    first = "substringUTF8(assumeNotNull(@a), 1, 1)"
    return once(f"if(isNull(@a), NULL, if(@a = '', 0, {_code_of(first)}))", as_text(node.this))


def _character(node: exp.Expr) -> exp.Expr:
    is_invalid = "(@a < 0 OR @a > 1114111 OR @a BETWEEN 55296 AND 57343)"
    body = f"if(isNull(@a), NULL, if(@a = 0, '', {_character_of('assumeNotNull(@a)')}))"
    return once(fail_if(node, is_invalid, "Invalid codepoint", body), node.expressions[0])


def _translate(node: exp.Expr) -> exp.Expr:
    source, target = source_and_target(node)
    if constant_text(source) is None or constant_text(target) is None:
        unsupported(node, "TRANSLATE of characters that are no literals")
    if has_duplicate_characters(node, source):
        return null_of(STRING)
    name = "translate" if is_bytes(node.this) else "translateUTF8"
    return fragment(f"{name}({{0}}, {{1}}, {{2}})", as_text(node.this), source, target)


_DELIMITERS: Final = ' \t\n\v\f\r[](){}/|<>!?@"^#$&~_,.:;*%+-'


def _initcap(node: exp.Expr) -> exp.Expr:
    """Lower INITCAP: a letter is in upper case at the start and after a delimiter, else in lower case."""
    argument = node.args.get("expression")
    delimiters = argument if argument is not None else text_part(_DELIMITERS)
    character = "substringUTF8(lowerUTF8(assumeNotNull(@a)), _i, 1)"
    follows_delimiter = "_i = 1 OR positionUTF8(@b, substringUTF8(assumeNotNull(@a), _i - 1, 1)) > 0"
    characters = f"arrayMap(_i -> if({follows_delimiter}, upperUTF8({character}), {character}), range(1, lengthUTF8(assumeNotNull(@a)) + 1))"
    return once(
        f"if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat({characters.replace('@b', 'assumeNotNull(@b)')}))",
        as_text(node.this),
        delimiters,
    )


RULES = RuleSet(
    nodes={
        exp.ToCodePoints: _code_points,
        exp.CodePointsToString: _from_code_points,
        exp.CodePointsToBytes: _bytes_from_code_points,
        exp.Unicode: _first_code,
        exp.Ascii: _first_code,
        exp.Chr: _character,
        exp.Translate: _translate,
        exp.Initcap: _initcap,
    }
)
