"""JSON functions: their constant paths, options and documents, and the JSON text of values of each type.

JSON documents that are literals are parsed at compile time, by a parser that is stricter than those of the engines. If
an object has duplicate keys, the first value is kept.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn

import msgspec
from sqlglot import exp

from cordwood.model.datatype import DATE_AND_TIME_KINDS, Datatype, Kind
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.lowering import (
    LoweringRule,
    RuleSet,
    bigquery_function_name,
    fragment_node,
    raise_unsupported,
    string_literal_node,
)
from cordwood.sql.nodes import constant_python_value, constant_text, parse_digits
from cordwood.sql.rules.time_text import TimePrinter
from cordwood.sql.rules.vocabulary import CommonSql

# A step of a JSON path is a key, or an array index that counts from zero.
JsonPathSteps = list[str | int]

# A step of a JSON path: `[0]`, `['key']`, `["key"]`, `[key]`, `."key"` or `.key`. Wildcards, slices and indexes from
# the end do not match, because they are not supported.
_JSON_PATH_STEP_PATTERN: Final = re.compile(
    r"""\[(\d+)\]|\['(.*?)'\]|\["(.*?)"\]|\[([^\]'"*-][^\]'"*]*)\]|\."([^"]*)"|\.([^."\[*]+)"""
)


def json_path_steps(node: exp.Expr | None, call: exp.Expr) -> JsonPathSteps:
    """Return the steps of a JSON path; a missing path has no steps and refers to the whole document."""
    if node is None:
        return []
    if isinstance(node, exp.JSONPath):
        return [_json_path_step(step, call) for step in node.expressions[1:]]
    path = constant_text(node)
    if path is None:
        raise_unsupported(call, "A JSON path that is not a literal")
    return list(_parse_path(path.strip(), call))


def _json_path_step(step: exp.Expr, call: exp.Expr) -> str | int:
    if isinstance(step, exp.JSONPathKey) and isinstance(step.this, str):
        return step.this
    if isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, (int, str)):
        return parse_digits(str(step.this)) if str(step.this).isdecimal() else str(step.this)
    return raise_unsupported(call, "This JSON path")


def _parse_path(path: str, call: exp.Expr) -> Iterator[str | int]:
    """Parse paths that sqlglot leaves as text: `$[a]`, `$['a.b']`, and unquoted keys with dashes."""
    if not path.startswith("$"):
        raise_unsupported(call, f"The JSON path '{path}'")
    position = 1
    while position < len(path):
        match = _JSON_PATH_STEP_PATTERN.match(path, position)
        if match is None:
            raise_unsupported(call, "This JSON path")
        array_index, *names = match.groups()
        yield parse_digits(array_index) if array_index is not None else next(name for name in names if name is not None)
        position = match.end()


INVALID_JSON_MESSAGE: Final = "syntax error while parsing JSON, or a number in it is too wide"

_STRINGIFY_OPTION: Final = "stringify_wide_numbers"
_INT64_MIN: Final = -(2**63)
_UINT64_MAX: Final = 2**64 - 1


class _NumberText(str):
    """The text of a number in a JSON document. The canonical document has exactly this text."""

    __slots__ = ()


def rounds_wide_numbers(node: exp.Expr, default_mode: str) -> bool:
    """Return whether the call has `wide_number_mode => 'round'`; if it does not have the option, use `default_mode`."""
    option = node.args.get("expression")
    mode = default_mode if option is None else option_value(option) if isinstance(option, exp.Kwarg) else None
    if mode not in ("exact", "round") or (option is not None and option.this.name.lower() != "wide_number_mode"):
        raise_unsupported(
            node, f"{bigquery_function_name(node)} other than with wide_number_mode => 'exact' or 'round'"
        )
    return mode == "round"


def stringifies_wide_numbers(node: exp.Expr) -> bool:
    """Return whether TO_JSON writes wide integers as strings, by its option `stringify_wide_numbers`."""
    option = node.args.get("options")
    if option is None:
        return False
    is_on = option_value(option)
    if not isinstance(is_on, bool) or (isinstance(option, exp.Kwarg) and option.this.name.lower() != _STRINGIFY_OPTION):
        raise_unsupported(node, "TO_JSON other than with stringify_wide_numbers => TRUE or FALSE")
    return is_on


def option_value(option: exp.Expr) -> object:
    """Return the value of an option, given by name or by position; None if the value is not a literal."""
    return constant_python_value(option.expression if isinstance(option, exp.Kwarg) else option)


def canonical_json_text(text: str, *, rounds: bool) -> str | None:
    """Return the JSON document in canonical spelling; None if it is invalid, or if a number must be rounded.

    If `rounds` is set, numbers may be rounded to FLOAT64; only a number beyond the range of FLOAT64 then yields None.
    """
    try:
        parsed = json.loads(
            text,
            object_pairs_hook=_keep_first_values,
            parse_int=lambda digits: _parse_integer(digits, rounds=rounds),
            parse_float=lambda digits: _parse_fraction(digits, rounds=rounds),
            parse_constant=_refuse_nan_or_infinity,
        )
        written = _write_json(parsed)
        written.encode()
    except (ValueError, RecursionError):
        return None
    return written


def _keep_first_values(pairs: list[tuple[str, object]]) -> dict[str, object]:
    first_values: dict[str, object] = {}
    for key, value in pairs:
        first_values.setdefault(key, value)
    return first_values


def _parse_integer(digits: str, *, rounds: bool) -> _NumberText:
    fits = len(digits) < 21 and _INT64_MIN <= int(digits) <= _UINT64_MAX
    return _NumberText(digits) if fits else _parse_fraction(digits, rounds=rounds)


def _parse_fraction(digits: str, *, rounds: bool) -> _NumberText:
    value = float(digits)
    try:
        is_exact = Decimal(digits) == Decimal(repr(value))
    except InvalidOperation:
        # The exponent has more digits than those of Decimal.
        is_exact = False
    if is_exact:
        return _NumberText(digits)
    if not rounds or math.isinf(value):
        raise ValueError(digits)
    return _NumberText(repr(value))


def _refuse_nan_or_infinity(name: str) -> NoReturn:
    raise ValueError(name)


def _write_json(value: object) -> str:
    if isinstance(value, _NumberText):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{_write_json(key)}:{_write_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


KeyValuePairs = list[tuple[exp.Expr, exp.Expr]]


def json_object_pairs(node: exp.Expr) -> KeyValuePairs:
    """Return JSON_OBJECT's keys and values, without later duplicates of constant keys."""
    seen: set[str | None] = set()
    pairs: KeyValuePairs = []
    for pair in node.expressions:
        key = constant_text(pair.this)
        if key is None or key not in seen:
            pairs.append((pair.this, pair.expression))
        seen.add(key)
    return pairs


def are_key_and_value_arrays(pairs: KeyValuePairs) -> bool:
    return len(pairs) == 1 and kind_of(pairs[0][0]) is Kind.ARRAY


def have_constant_keys(pairs: KeyValuePairs) -> bool:
    return all(constant_text(key) is not None for key, _ in pairs)


# Templates over `@a` that print a value as JSON, by the value's type.
ScalarTemplates = Mapping[Kind, str]


class JsonPrinter(msgspec.Struct, frozen=True):
    """The printer of values as JSON for one engine, without white space.

    `scalar_templates` are TO_JSON's templates. TO_JSON_STRING prints numbers that may be too large for JavaScript as
    texts; for their types, `quoted_number_templates` has other templates. `untyped_template` is for values whose type
    is not known, and `default_template` is for types without a template of their own. `parse_json` converts JSON text
    to a JSON value. `apply_pretty_print` formats JSON text by the option `pretty_print` of TO_JSON_STRING.
    """

    common_sql: CommonSql
    time_printer: TimePrinter
    scalar_templates: ScalarTemplates
    quoted_number_templates: ScalarTemplates
    untyped_template: str
    default_template: str
    parse_json: Callable[[exp.Expr], exp.Expr]
    apply_pretty_print: Callable[[exp.Expr, exp.Expr], exp.Expr]

    def print_value(
        self, node: exp.Expr, datatype: Datatype | None, scalars: ScalarTemplates | None = None
    ) -> exp.Expr:
        """Return SQL for the JSON text of a value. The SQL is never NULL: for a NULL value, the text is `null`."""
        if isinstance(node, exp.Null):
            return fragment_node("'null'")
        return self._print_nullable(
            node,
            datatype,
            {**self.scalar_templates, **self.quoted_number_templates} if scalars is None else scalars,
            depth=0,
        )

    def _print_nullable(
        self, node: exp.Expr, datatype: Datatype | None, scalars: ScalarTemplates, depth: int
    ) -> exp.Expr:
        return fragment_node(
            self.common_sql.coalesce("{0}", "'null'"), self._print_non_null(node, datatype, scalars, depth)
        )

    def _print_non_null(
        self, node: exp.Expr, datatype: Datatype | None, scalars: ScalarTemplates, depth: int
    ) -> exp.Expr:
        if datatype is None:
            return fragment_node(self.untyped_template, node)
        if datatype.kind is Kind.ARRAY:
            name = f"_j{depth}"
            element = self._print_nullable(fragment_node(name), datatype.element, scalars, depth + 1)
            return self.common_sql.bracketed_array_text(node, name, element, ",")
        if datatype.kind is Kind.STRUCT:
            return self._print_object(node, datatype, scalars, depth)
        if datatype.kind is Kind.INTERVAL:
            raise_unsupported(node, "An INTERVAL as JSON")
        if datatype.kind in (Kind.TIMESTAMP, Kind.DATETIME, Kind.TIME):
            return self.time_printer.print_as_json(node, datatype.kind)
        return self.common_sql.fill_template(scalars.get(datatype.kind, self.default_template), node)

    def _print_object(self, node: exp.Expr, datatype: Datatype, scalars: ScalarTemplates, depth: int) -> exp.Expr:
        """Print a struct as a JSON object. Its keys are the author's field names, which may be empty or duplicate."""
        words, name = self.common_sql, f"_s{depth}"
        parts: list[exp.Expr] = []
        for position, (label, field) in enumerate(datatype.fields, 1):
            key = ("," if parts else "{") + json.dumps(label, ensure_ascii=False) + ":"
            value = self._print_nullable(fragment_node(words.struct_field(name, position)), field, scalars, depth + 1)
            parts += [string_literal_node(key), value]
        body = words.concat(*(f"{{{index}}}" for index in range(1, len(parts) + 1)), "'}'") if parts else "'{}'"
        return fragment_node(
            words.let_binding("{0}", name, words.case_when(words.is_null(name), "NULL", body)), node, *parts
        )

    def convert_to_json(self, value: exp.Expr, *, stringifies_wide: bool = False) -> exp.Expr:
        """Return a value as JSON; if `stringifies_wide` is set, numbers too large for JavaScript become texts."""
        scalars = None if stringifies_wide else self.scalar_templates
        return self.parse_json(self.print_value(value, datatype_of(value), scalars))

    def _translate_to_json(self, node: exp.Expr) -> exp.Expr:
        if node.args.get("to_json"):
            return self.convert_to_json(node.this, stringifies_wide=stringifies_wide_numbers(node))
        return self.apply_pretty_print(node, self.print_value(node.this, datatype_of(node.this)))

    def rules(self) -> RuleSet:
        return RuleSet(by_node_class={exp.JSONFormat: self._translate_to_json})


def with_wide_number_mode_check(rule: LoweringRule) -> LoweringRule:
    """Return `rule`, the rule of FLOAT64(json), with a check that `wide_number_mode` is not the unsupported 'exact'."""

    def apply_checked_rule(node: exp.Expr) -> exp.Expr:
        if not rounds_wide_numbers(node, default_mode="round"):
            raise_unsupported(node, "FLOAT64 with wide_number_mode => 'exact'")
        return rule(node)

    return apply_checked_rule


def string_function_rule(times: TimePrinter, rule: LoweringRule) -> LoweringRule:
    """Return the rule of STRING: it prints a time, as in `STRING(timestamp[, zone])`, and applies `rule` to JSON."""

    def apply_string_rule(node: exp.Expr) -> exp.Expr:
        value = node.this if isinstance(node.this, exp.Expr) else node.expressions[0]
        if kind_of(value) not in DATE_AND_TIME_KINDS:
            return rule(node)
        zone = node.args.get("zone") or (node.expressions[1] if len(node.expressions) > 1 else None)
        return times.print_as_cast(value, zone)

    return apply_string_rule
