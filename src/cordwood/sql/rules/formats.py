"""FORMAT(): the parser of format strings, and the SQL for the text of an argument, for each format specifier.

%t prints a value as CAST does, and %T as a literal of BigQuery.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NoReturn, Protocol

import msgspec
from sqlglot import exp

from cordwood.errors import BadQueryValue
from cordwood.model.datatype import DATE_AND_TIME_KINDS, EXACT_NUMERIC_KINDS, NUMBER_KINDS, Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import STRING, datatype_of, is_event_number, kind_of, set_datatype
from cordwood.sql.lowering import (
    RuleSet,
    fragment_node,
    raise_unsupported,
    returns_null_on_error,
    span_of_node_or_descendant,
    string_literal_node,
)
from cordwood.sql.nodes import constant_int, constant_text, is_null, parse_digits
from cordwood.sql.rules.json_functions import JsonPrinter
from cordwood.sql.rules.vocabulary import CommonSql, ExplicitCast

_SPECIFIER_PATTERN: Final = re.compile(r"%([-+ #0']*+)(\d++|\*)?(?:\.(\d++|\*)?)?([a-zA-Z%])|%|([^%]+)", re.ASCII)
_PRECISION_PATTERN: Final = re.compile(r"%[-+ #0']*+(?:\d++|\*)?\.", re.ASCII)

# The maximum of the width and of the precision of a format specifier, in characters.
MAX_FIELD_WIDTH: Final = 10_000

_INTEGER_CONVERSION_LETTERS: Final = "diuxXo"
_HEX_AND_OCTAL_LETTERS: Final = "xXo"
_FLOAT_CONVERSION_LETTERS: Final = "fFeEgG"
TEXT_CONVERSION_LETTERS: Final = "stTpP"

_ACCEPTED_KINDS_BY_LETTER: Final = {
    **dict.fromkeys(_INTEGER_CONVERSION_LETTERS, (Kind.INT64,)),
    **dict.fromkeys(_FLOAT_CONVERSION_LETTERS, NUMBER_KINDS),
    **dict.fromkeys("pP", (Kind.JSON,)),
    "s": (Kind.STRING,),
    "*": (Kind.INT64,),
}


class FormatSpecifier(msgspec.Struct, frozen=True):
    """A format specifier such as `%-8.3f`. If a width or precision is `*`, an argument of FORMAT has its value."""

    flags: str
    width: str | None
    precision: str | None
    conversion_letter: str

    @property
    def is_too_wide(self) -> bool:
        return any(
            part and part.isdecimal() and parse_digits(part) > MAX_FIELD_WIDTH for part in (self.width, self.precision)
        )

    def printf_specifier(self, letter: str) -> str:
        """Return the specifier for the engine's printf, with `letter` as its conversion letter."""
        return f"%{self.flags.replace(chr(39), '')}{self.width or ''}{self._precision_part}{letter}"

    @property
    def without_zero_padding(self) -> "FormatSpecifier":
        """A copy of this specifier without the flag for padding with zeros."""
        return msgspec.structs.replace(self, flags=self.flags.replace("0", ""))

    @property
    def number_specifier(self) -> str:
        """The printf specifier for a number without sign and padding."""
        return f"%{'#' if self.has_alternate_form else ''}{self._precision_part}{self.conversion_letter}"

    @property
    def padding_specifier(self) -> str | None:
        """The printf specifier that pads and cuts an already formatted text; None if the text stays unchanged."""
        precision_part = self._precision_part if self.conversion_letter in TEXT_CONVERSION_LETTERS else ""
        if self.width is None and not precision_part:
            return None
        return f"%{'-' if self.is_left_aligned else ''}{self.width or ''}{precision_part}s"

    @property
    def positive_sign(self) -> str:
        """The sign of numbers that are not negative: `+`, a space or nothing, depending on the flags."""
        return "+" if "+" in self.flags else " " if " " in self.flags else ""

    @property
    def is_left_aligned(self) -> bool:
        return "-" in self.flags

    @property
    def has_digit_groups(self) -> bool:
        return "'" in self.flags

    @property
    def has_alternate_form(self) -> bool:
        """Whether the flag `#` requests a decimal point, trailing zeros, and 0x before hexadecimal digits."""
        return "#" in self.flags

    @property
    def is_zero_padded(self) -> bool:
        return "0" in self.flags

    @property
    def _precision_part(self) -> str:
        return f".{self.precision}" if self.precision is not None else ""


class FormatField(msgspec.Struct, frozen=True):
    """A specifier in a format, the argument that it formats, and the arguments for a width or precision of `*`.

    The latter are `star_width` and `star_precision`. If such an argument is constant, it has been inserted into the
    specifier instead of the `*`, and `star_width` or `star_precision` is None.
    """

    spec: FormatSpecifier
    value: exp.Expr
    star_width: exp.Expr | None
    star_precision: exp.Expr | None

    @property
    def star_arguments(self) -> list[exp.Expr]:
        return [count for count in (self.star_width, self.star_precision) if count is not None]

    @property
    def exact_numeric_kind(self) -> Kind | None:
        """The value's type if the value is a NUMERIC or BIGNUMERIC to be printed by %f or %F; None otherwise."""
        kind = kind_of(self.value)
        return kind if kind in EXACT_NUMERIC_KINDS and self.spec.conversion_letter in "fF" else None


def _unwrap_cast_null(node: exp.Expr) -> exp.Expr:
    """If the format string of FORMAT is a cast of NULL, replace it by a plain NULL."""
    if isinstance(node.this, (exp.Cast, exp.TryCast)) and is_null(node.this.this):
        node.set("this", exp.Null())
    return node


def _parse_format(node: exp.Expr, format_string: str) -> Iterator[str | FormatField | None]:
    """Yield the parts of a format: texts, and specifiers with their arguments; None for an invalid specifier."""
    arguments = iter(node.expressions)
    for part in _split_format(format_string):
        if part is None:
            yield None
            return
        yield part if isinstance(part, str) else _make_field(node, part, arguments)
    if next(arguments, None) is not None:
        _raise_bad_value(node, "FORMAT has more arguments than there are specifiers in its format.")


def _raise_bad_value(node: exp.Expr, message: str, hint: str | None = None) -> NoReturn:
    raise BadQueryValue(message, hint=hint, span=span_of_node_or_descendant(node))


def _make_field(node: exp.Expr, spec: FormatSpecifier, arguments: Iterator[exp.Expr]) -> FormatField:
    width = _next_argument(node, "*", arguments) if spec.width == "*" else None
    precision = _next_argument(node, "*", arguments) if spec.precision == "*" else None
    value = _next_argument(node, spec.conversion_letter, arguments)
    constant_width, constant_precision = constant_int(width), constant_int(precision)
    if constant_width is not None:
        flags = spec.flags + "-" if constant_width < 0 else spec.flags
        spec, width = msgspec.structs.replace(spec, flags=flags, width=str(abs(constant_width))), None
    if constant_precision is not None:
        spec = msgspec.structs.replace(spec, precision=str(constant_precision) if constant_precision >= 0 else None)
        precision = None
    return FormatField(_normalize_specifier(spec), value, width, precision)


def _next_argument(node: exp.Expr, letter: str, arguments: Iterator[exp.Expr]) -> exp.Expr:
    """Return the next argument of FORMAT; raise BadQueryValue if there is none, or if its type does not fit."""
    argument = next(arguments, None)
    if argument is None:
        _raise_bad_value(node, f"FORMAT has too few arguments: there is none for %{letter}.")
    kinds, kind = _ACCEPTED_KINDS_BY_LETTER.get(letter), kind_of(argument)
    if kinds and kind not in (None, Kind.VARIANT, *kinds) and not (Kind.INT64 in kinds and is_event_number(argument)):
        hint = "Write %t for a value of any type." if letter == "s" else None
        _raise_bad_value(
            node, f"%{letter} of FORMAT takes {_join_kind_names(kinds)}, but its argument is {kind}.", hint
        )
    return argument


def _join_kind_names(kinds: tuple[Kind, ...]) -> str:
    return " or ".join((", ".join(kinds[:-1]), kinds[-1])) if len(kinds) > 1 else kinds[0]


def _normalize_specifier(spec: FormatSpecifier) -> FormatSpecifier:
    """Return the specifier without flags that have no effect, and with a precision of at least 1 for %g."""
    ineffective = _ineffective_flags(spec)
    flags = "".join(flag for flag in dict.fromkeys(spec.flags) if flag not in ineffective)
    precision = "1" if spec.conversion_letter in "gG" and spec.precision == "0" else spec.precision
    return msgspec.structs.replace(spec, flags=flags, precision=precision)


def _ineffective_flags(spec: FormatSpecifier) -> str:
    ineffective = " " if "+" in spec.flags else ""
    has_all_digits = spec.conversion_letter in _INTEGER_CONVERSION_LETTERS and spec.precision is not None
    return ineffective + "0" if spec.is_left_aligned or has_all_digits else ineffective


def _split_format(format_string: str) -> Iterator[str | FormatSpecifier | None]:
    for match in _SPECIFIER_PATTERN.finditer(format_string):
        if match[5] is not None:
            yield match[5]
        elif match[4] == "%":
            yield "%"
        elif match[4] is None:
            yield None
        else:
            precision = match[3] if match[3] is not None else ("0" if _PRECISION_PATTERN.match(match[0]) else None)
            yield FormatSpecifier(match[1], match[2], precision, match[4])


# The number of digits in a group, and the separator of groups, by conversion letter.
_DIGIT_GROUPING_BY_LETTER: Final = {"d": (3, ","), "o": (4, ","), "x": (4, ":"), "X": (4, ":")}
UNSUPPORTED_ZERO_PADDING_SUBJECT: Final = "A field in FORMAT that zeros fill, whose width is not a literal,"


class FormatSql(Protocol):
    """An engine's SQL for the steps of FORMAT."""

    # The number of digits after the decimal point that the engine keeps in NUMERIC and BIGNUMERIC values.
    decimal_places: Mapping[Kind, int]
    # Templates that write the value `@a` as a literal for %T, for the types whose literals are quoted; and the quotes
    # that are escaped when %t prints BYTES.
    literal_templates: Mapping[Kind, str]
    escaped_quotes: Sequence[str]

    def concatenate(self, parts: Sequence[exp.Expr]) -> exp.Expr: ...
    def format_with_printf(self, node: exp.Expr, field: FormatField, letter: str, value: exp.Expr) -> exp.Expr: ...

    def pad_to_width(self, node: exp.Expr, field: FormatField, value: exp.Expr) -> exp.Expr:
        """Pad a text to the specifier's width; for specifiers of texts, also cut the text to the precision."""
        ...

    def integer_precision_from_argument(self, node: exp.Expr, count: exp.Expr) -> exp.Expr:
        """Return the precision for an integer's specifier that has a `*`; `count` is the argument that states it."""
        ...

    def integer_digits(self, spec: FormatSpecifier, letter: str) -> str:
        """Return SQL for the digits of the integer @a, filled with zeros up to the precision.

        If the precision is not constant, it is @b.
        """
        ...

    def padding_zeros(self, width: int, sign: str, digits: str) -> str:
        """Return SQL for zeros between `sign` and `digits`, so that the number has at least `width` characters."""
        ...

    def is_flag_unsupported(self, spec: FormatSpecifier) -> bool:
        """Return whether the engine's printf cannot apply one of the specifier's flags to numbers with a fraction."""
        ...

    def float_digits_sql(self, spec: FormatSpecifier) -> str:
        """Return SQL for the digits of the absolute value of the float @a; the placeholder {0} is the specifier."""
        ...

    def exact_numeric_digits(self, decimals: int, *, with_point: bool) -> str:
        """Return SQL for the digits of the absolute value of the NUMERIC or BIGNUMERIC @a.

        If `with_point` is set, the digits end with a decimal point even when `decimals` is 0.
        """
        ...

    def strip_leading_character(self, text: str, mark: str) -> str: ...
    def indent_json(self, node: exp.Expr, json_value: exp.Expr) -> exp.Expr: ...
    def escape_bytes(self, *quotes: str) -> str: ...
    def fill_template_unless_null(self, template: str, value: exp.Expr) -> exp.Expr: ...


class FormatRules(msgspec.Struct, frozen=True):
    """The lowering rule of FORMAT for one engine."""

    common_sql: CommonSql
    engine_sql: FormatSql
    cast_to: ExplicitCast
    json_printer: JsonPrinter

    def _translate_format(self, node: exp.Expr) -> exp.Expr:
        format_text = constant_text(node.this)
        if isinstance(node.this, exp.Null):
            return exp.Null()
        if format_text is None:
            raise_unsupported(node, "FORMAT with a format that is not a literal")
        parts = list(self._translate_format_parts(node, format_text))
        return self.engine_sql.concatenate(parts) if parts else fragment_node("''")

    def _translate_format_parts(self, node: exp.Expr, format_text: str) -> Iterator[exp.Expr]:
        for part in _parse_format(node, format_text):
            if part is None:
                yield self._null_or_error(node, "The format of FORMAT is not valid: a percent sign is written %%.")
            elif isinstance(part, str):
                yield string_literal_node(part)
            else:
                yield self._print_field(node, part)

    def _null_or_error(self, node: exp.Expr, message: str) -> exp.Expr:
        if returns_null_on_error(node):
            return self.common_sql.typed_null(STRING)
        raise BadQueryValue(message, span=span_of_node_or_descendant(node))

    def _print_field(self, node: exp.Expr, field: FormatField) -> exp.Expr:
        letter = field.spec.conversion_letter
        if field.spec.is_too_wide:
            return (
                self.common_sql.typed_null(STRING)
                if returns_null_on_error(node)
                else raise_unsupported(node, "So wide a field in FORMAT")
            )
        if letter in _INTEGER_CONVERSION_LETTERS:
            return self._print_integer(node, field)
        if letter in _FLOAT_CONVERSION_LETTERS:
            return (
                self._print_exact_number(node, field, field.exact_numeric_kind)
                if field.exact_numeric_kind
                else self._print_float(node, field)
            )
        if letter in TEXT_CONVERSION_LETTERS:
            return self.engine_sql.pad_to_width(node, field, self._print_text(node, letter, field.value))
        return self._null_or_error(node, f"FORMAT has no specifier %{letter}.")

    def _print_integer(self, node: exp.Expr, field: FormatField) -> exp.Expr:
        words, spec = self.common_sql, field.spec
        value = fragment_node(words.as_integer("{0}"), words.convert_implicitly(field.value, Kind.INT64))
        letter = spec.conversion_letter if spec.conversion_letter in _HEX_AND_OCTAL_LETTERS else "d"
        if letter != "d":
            value = words.fill_template(
                words.fail_if_sql(node, "@a < 0", f"%{letter} of a negative number", "@a"), value
            )
        if spec.precision is None and not spec.has_digit_groups:
            return self.engine_sql.format_with_printf(node, field, letter, value)
        digits = self.engine_sql.integer_digits(spec, letter)
        if spec.has_digit_groups:
            digits = self._insert_digit_separators(digits, *_DIGIT_GROUPING_BY_LETTER[letter])
        counts = (
            []
            if field.star_precision is None
            else [self.engine_sql.integer_precision_from_argument(node, field.star_precision)]
        )
        return self._compose_number(node, field, digits, value, *counts)

    def _insert_digit_separators(self, digits: str, size: int, mark: str) -> str:
        """Return SQL that inserts `mark` between groups of `size` digits, counted from the last digit."""
        marked = self.common_sql.replace_all(f"reverse({digits})", f"({'.' * size})", f"\\1{mark}")
        return self.engine_sql.strip_leading_character(f"reverse({marked})", mark)

    def _compose_number(
        self, node: exp.Expr, field: FormatField, digits: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()
    ) -> exp.Expr:
        """Return the text of the number @a: its sign or prefix, zeros and digits, padded with blanks to the width."""
        words, spec = self.common_sql, field.spec
        sign = words.case_when("@a < 0", "'-'", f"'{spec.positive_sign}'")
        if spec.conversion_letter in _HEX_AND_OCTAL_LETTERS:
            has_prefix = spec.has_alternate_form and spec.conversion_letter != "o"
            sign = words.case_when("@a = 0", "''", f"'0{spec.conversion_letter}'") if has_prefix else "''"
        if not spec.is_zero_padded:
            return self.engine_sql.pad_to_width(
                node, field, words.fill_template(words.concat(sign, digits), *parts, texts=texts)
            )
        if spec.width == "*":
            raise_unsupported(node, UNSUPPORTED_ZERO_PADDING_SUBJECT)
        zeros = self.engine_sql.padding_zeros(int(spec.width or 0), sign, digits)
        return words.fill_template(words.concat(sign, zeros, digits), *parts, texts=texts)

    def _print_float(self, node: exp.Expr, field: FormatField) -> exp.Expr:
        words, spec = self.common_sql, field.spec
        value = fragment_node(words.as_float("{0}"), words.convert_implicitly(field.value, Kind.FLOAT64))
        if self.engine_sql.is_flag_unsupported(spec):
            if field.star_precision is not None:
                raise_unsupported(node, "A precision in FORMAT that is not a literal, beside such flags,")
            digits = self.engine_sql.float_digits_sql(spec)
            digits = self._group_digits_by_thousands(digits) if spec.has_digit_groups else digits
            return self._compose_number(node, field, digits, value, texts=[string_literal_node(spec.number_specifier)])
        padded = self.engine_sql.format_with_printf(node, field, spec.conversion_letter, value)
        if not spec.is_zero_padded:
            return padded
        counts = [None if count is None else copy_tree(count) for count in (field.star_width, field.star_precision)]
        unpadded_field = msgspec.structs.replace(
            field, spec=spec.without_zero_padding, star_width=counts[0], star_precision=counts[1]
        )
        without_zeros = self.engine_sql.format_with_printf(
            node, unpadded_field, spec.conversion_letter, copy_tree(value)
        )
        template = words.case_when(words.is_finite("{0}"), "{1}", "{2}")
        return fragment_node(template, copy_tree(value), padded, without_zeros)

    def _print_exact_number(self, node: exp.Expr, field: FormatField, kind: Kind) -> exp.Expr:
        """Print a NUMERIC or BIGNUMERIC without converting it to a float. Halves are rounded away from zero."""
        spec = field.spec
        if field.star_precision is not None:
            raise_unsupported(node, f"A precision of {kind} in FORMAT that is not a literal")
        decimals = int(spec.precision or 6)
        kept_decimals = min(decimals, self.engine_sql.decimal_places[kind])
        digits = self.engine_sql.exact_numeric_digits(kept_decimals, with_point=spec.has_alternate_form)
        if decimals > kept_decimals:
            digits = self.common_sql.concat(digits, f"repeat('0', {decimals - kept_decimals})")
        digits = self._group_digits_by_thousands(digits) if spec.has_digit_groups else digits
        return self._compose_number(node, field, digits, self.common_sql.cast(field.value, kind))

    def _group_digits_by_thousands(self, digits: str) -> str:
        """Insert commas between groups of three digits before the decimal point or exponent."""
        words, leading = self.common_sql, "^[0-9]+"
        return words.concat(
            self._insert_digit_separators(words.extract_first_match(digits, leading), 3, ","),
            words.replace_first(digits, leading, ""),
        )

    def _print_text(self, node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
        words = self.common_sql
        if letter == "s":
            return self.cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
        if letter in "pP":
            json_value = self.json_printer.print_value(value, datatype_of(value))
            text = json_value if letter == "p" else self.engine_sql.indent_json(node, json_value)
            return fragment_node(words.case_when(words.is_not_null("{0}"), "{1}"), copy_tree(value), text)
        render = self._print_literal if letter == "T" else self._print_readable
        return fragment_node(words.coalesce("{0}", "'NULL'"), render(value, datatype_of(value), depth=0))

    def _print_readable(self, value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
        """Return the text of a value for %t: as CAST prints it, with arrays and structs in brackets."""
        if datatype is not None and datatype.kind in (Kind.ARRAY, Kind.STRUCT):
            return self._print_nested(value, datatype, depth, typed=False)
        if datatype is not None and datatype.kind is Kind.BYTES:
            return self.engine_sql.fill_template_unless_null(
                self.engine_sql.escape_bytes(*self.engine_sql.escaped_quotes), value
            )
        return (
            self._append_fraction_to_whole_float(self.cast_to(value, value, STRING), datatype)
            if datatype != STRING
            else value
        )

    def _print_literal(self, value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
        """Return the text of a value for %T: a literal of the value's type."""
        words = self.common_sql
        if datatype is None or isinstance(value, exp.Null):
            return fragment_node(words.as_text("{0}"), value)
        if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
            return self._print_nested(value, datatype, depth, typed=True)
        if datatype.kind in self.engine_sql.literal_templates:
            return self.engine_sql.fill_template_unless_null(self.engine_sql.literal_templates[datatype.kind], value)
        text = self._append_fraction_to_whole_float(self.cast_to(value, value, STRING), datatype)
        if datatype.kind is Kind.FLOAT64:
            # NaN and the infinities have no literal form, so they are printed as casts of texts.
            cast = words.concat("'CAST(\"'", "@a", "'\" AS FLOAT64)'")
            return words.fill_template(words.case_when("@a IN ('nan', 'inf', '-inf')", cast, "@a"), text)
        if datatype.kind is Kind.INTERVAL:
            return fragment_node(words.concat("'INTERVAL \"'", "{0}", "'\" YEAR TO SECOND'"), text)
        if datatype.kind in (*DATE_AND_TIME_KINDS, *EXACT_NUMERIC_KINDS):
            return fragment_node(words.concat(f"'{datatype.kind} \"'", "{0}", "'\"'"), text)
        return text

    def _append_fraction_to_whole_float(self, text: exp.Expr, datatype: Datatype | None) -> exp.Expr:
        """Append `.0` to a FLOAT64 that is a whole number, to distinguish it from an INT64."""
        if datatype is None or datatype.kind is not Kind.FLOAT64 or datatype.is_event_number:
            return text
        words = self.common_sql
        return words.fill_template(
            words.case_when(words.full_match("@a", "-?[0-9]+"), words.concat("@a", "'.0'"), "@a"), text
        )

    def _print_nested(self, value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
        words, name = self.common_sql, f"_f{depth}"
        render = self._print_literal if typed else self._print_readable
        if datatype.kind is Kind.ARRAY:
            inner = render(set_datatype(fragment_node(name), datatype.element), datatype.element, depth + 1)
            return words.bracketed_array_text(value, name, fragment_node(words.coalesce("{0}", "'NULL'"), inner), ", ")
        parts = [
            render(set_datatype(fragment_node(words.struct_field(name, position)), field), field, depth + 1)
            for position, (_, field) in enumerate(datatype.fields, 1)
        ]
        texts = [words.coalesce(f"{{{index}}}", "'NULL'") for index in range(1, len(parts) + 1)]
        separated = [piece for text in texts for piece in ("', '", text)][1:]
        opening = "'STRUCT('" if typed and len(parts) == 1 else "'('"
        body = words.case_when(words.is_null(name), "NULL", words.concat(opening, *separated, "')'"))
        return fragment_node(words.let_binding("{0}", name, body), value, *parts)

    def rules(self) -> RuleSet:
        return RuleSet(
            by_node_class={exp.Format: self._translate_format},
            by_node_class_before_children={exp.Format: _unwrap_cast_null},
        )
