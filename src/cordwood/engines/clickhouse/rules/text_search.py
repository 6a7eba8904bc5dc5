"""Rules for search in texts: LIKE, regular expressions and CONTAINS_SUBSTR.

Both dialects use RE2's regular expressions. In BigQuery, however, a missing match is NULL, and positions count
characters.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fail_if_sql, fill_template, typed_null
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.strings import convert_variant_to_text
from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import BOOL, INT64, STRING, array_of, datatype_of, kind_of, set_datatype
from cordwood.sql.lowering import (
    RAISED_ERROR_PREFIX,
    RuleSet,
    bigquery_function_name,
    fragment_node,
    quoted_literal_sql,
    raise_unsupported,
    returns_null_on_error,
    span_of_node_or_descendant,
    string_literal_node,
)
from cordwood.sql.nodes import CONSTANT_VALUE_METADATA_KEY, constant_int, constant_text
from cordwood.sql.rules.strings import (
    count_capturing_groups,
    has_invalid_regexp_rewrite,
    has_only_anchored_empty_matches,
    is_invalid_pattern,
    may_capturing_group_be_unmatched,
    may_group_match_empty_text,
    may_match_empty_text,
    strip_contains_substr_lower_calls,
)


def _returns_null_for_invalid_pattern(node: exp.Expr) -> bool:
    """Return whether the call's result is always NULL, because the call is in SAFE and its constant pattern is invalid.

    If the function extracts groups, a pattern with several groups is invalid, too; outside of SAFE, such a pattern
    raises BadQueryValue. A search in BYTES is refused.
    """
    if kind_of(node.this) is Kind.BYTES:
        raise_unsupported(node, "A regular expression over BYTES")
    literal_text = constant_text(node.expression)
    if literal_text is None:
        return False
    if not isinstance(node, (exp.RegexpLike, exp.RegexpReplace)) and count_capturing_groups(literal_text) > 1:
        if returns_null_on_error(node):
            return True
        raise BadQueryValue(_TOO_MANY_GROUPS_MESSAGE, span=span_of_node_or_descendant(node))
    return returns_null_on_error(node) and is_invalid_pattern(literal_text)


def _refuse_patterns_matching_empty_text(node: exp.Expr) -> None:
    """Refuse a pattern that may match the empty text.

    ClickHouse finds empty matches at other places than BigQuery, or does not find them at all.
    """
    literal_text = constant_text(node.expression)
    if may_match_empty_text("." if literal_text is None else literal_text):
        raise_unsupported(node, f"A pattern of {bigquery_function_name(node)} that may match the empty text")


def _re2_pattern(node: exp.Expr) -> exp.Expr:
    """Return the pattern with the flag `(?-s)`, because in ClickHouse a dot also matches line ends by default."""
    literal_text = constant_text(node)
    if literal_text is None:
        return fragment_node("concat('(?-s)', {0})", node)
    pattern = string_literal_node(f"(?-s){literal_text}")
    pattern.meta[CONSTANT_VALUE_METADATA_KEY] = literal_text
    return pattern


def _translate_regexp_contains(node: exp.Expr) -> exp.Expr:
    if _returns_null_for_invalid_pattern(node):
        return typed_null(BOOL)
    return fragment_node("match({0}, {1})", convert_variant_to_text(node.this), _re2_pattern(node.expression))


# The marks around a match. ClickHouse can find all matches only for a constant pattern. For any other pattern, each
# match is replaced by itself between the two marks, and the marked texts are extracted. Characters of the text that are
# equal to a mark are removed beforehand.
_OPEN, _CLOSE = "\x01", "\x02"
_MARKED_MATCH_PATTERN: Final = f"{_OPEN}([^{_CLOSE}]*){_CLOSE}"
# SQL that counts the capturing groups of a pattern that is not constant. `_PATTERN_WITHOUT_CHARACTER_CLASSES_SQL`
# removes escapes and character classes from the pattern. In the result, `_GROUP_COUNT_SQL` counts the parentheses that
# open capturing groups.
_PATTERN_WITHOUT_CHARACTER_CLASSES_SQL: Final = r"replaceRegexpAll({0}, '\\\\.|\\[\\^?\\]?[^\\]]*\\]', '')"
_GROUP_COUNT_SQL: Final = "(countSubstrings({0}, '(') - countSubstrings({0}, '(?') + countSubstrings({0}, '(?P<'))"


def _capturing_group_count(pattern: exp.Expr, name: str) -> str:
    """Return the number of the pattern's capturing groups, or template text that computes the number at run time."""
    literal_text = constant_text(pattern)
    if literal_text is not None:
        return str(count_capturing_groups(literal_text))
    return _GROUP_COUNT_SQL.format(_PATTERN_WITHOUT_CHARACTER_CLASSES_SQL.format(f"assumeNotNull({name})"))


def _all_matches_sql(value: str, pattern: str, group_number: str) -> str:
    """Return template text for an array that has the group `group_number` of each match; "0" means the whole match.

    It also works for a pattern that is not constant.
    """
    without_marks = f"replaceRegexpAll(assumeNotNull({value}), '[{_OPEN}{_CLOSE}]', '')"
    marked = f"replaceRegexpAll({without_marks}, assumeNotNull({pattern}), '{_OPEN}\\\\{group_number}{_CLOSE}')"
    return f"extractAll({marked}, '{_MARKED_MATCH_PATTERN}')"


def _whole_matches_sql(pattern: exp.Expr, value: str, name: str) -> str:
    """Return template text for the array of all whole matches."""
    if constant_text(pattern) is None:
        return _all_matches_sql(value, name, "0")
    return f"arrayMap(_g -> _g[1], extractAllGroupsVertical({value}, concat('(', {name}, ')')))"


def _matches_or_first_groups_sql(pattern: exp.Expr, value: str, name: str) -> str:
    """Return template text for an array: the group of each match if the pattern has one, else the whole matches."""
    if constant_text(pattern) is not None:
        return f"extractAll(assumeNotNull({value}), assumeNotNull({name}))"
    groups = _capturing_group_count(pattern, name)
    fails_for_many = f"throwIf({groups} > 1, {quoted_literal_sql(RAISED_ERROR_PREFIX + _TOO_MANY_GROUPS_MESSAGE)})"
    return f"if({fails_for_many} = 0 AND {groups} = 1, {_all_matches_sql(value, name, '1')}, {_all_matches_sql(value, name, '0')})"


_TOO_MANY_GROUPS_MESSAGE: Final = "A regular expression that extracts has at most one group."


def _translate_regexp_extract(node: exp.Expr) -> exp.Expr:
    """Translate REGEXP_EXTRACT, which is NULL if there is no match."""
    if _returns_null_for_invalid_pattern(node):
        return typed_null(STRING)
    value, pattern = convert_variant_to_text(node.this), _re2_pattern(node.expression)
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        return _nth_match(node, value, pattern)
    first = _null_if_group_absent_sql(node, f"{_matches_or_first_groups_sql(pattern, '@a', '@b')}[1]")
    return fill_template(f"if(isNull(@a) OR isNull(@b), NULL, if(match(@a, @b), {first}, NULL))", value, pattern)


def _null_if_group_absent_sql(node: exp.Expr, group: str) -> str:
    """Return template text that is the group, or NULL if the group did not take part in the match.

    ClickHouse returns an empty text for such a group.
    """
    literal_text = constant_text(node.expression)
    if literal_text is None or not may_capturing_group_be_unmatched(literal_text):
        return group
    if may_group_match_empty_text(literal_text):
        raise_unsupported(node, f"A group of {bigquery_function_name(node)} that may be empty and may take no part")
    return f"nullIf({group}, '')"


def _nth_match(node: exp.Expr, value: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    position = node.args.get("position") or fragment_node("toInt64(1)")
    occurrence = node.args.get("occurrence") or fragment_node("toInt64(1)")
    _refuse_patterns_matching_empty_text(node)
    if (constant_text(pattern) or "").startswith("^") and (constant_int(position) or 1) > 1:
        # No match is possible: `^` matches only at the beginning of the text, but the search starts after it.
        return typed_null(STRING)
    matches = _matches_or_first_groups_sql(pattern, "substringUTF8(@a, greatest(@c, 1))", "@b")
    nth = _null_if_group_absent_sql(node, f"{matches}[assumeNotNull(greatest(@d, 1))]")
    is_missing = "isNull(@a) OR isNull(@b) OR isNull(@c) OR isNull(@d) OR @c > toInt64(lengthUTF8(@a)) + 1"
    body = f"if({is_missing} OR toInt64(length({matches})) < @d, NULL, {nth})"
    return fill_template(
        fail_if_sql(node, "(@c < 1 OR @d < 1)", _ARGUMENT_NOT_POSITIVE_MESSAGE, body),
        value,
        pattern,
        position,
        occurrence,
    )


_ARGUMENT_NOT_POSITIVE_MESSAGE: Final = "The position and occurrence arguments must be positive"


def _translate_regexp_extract_all(node: exp.Expr) -> exp.Expr:
    if _returns_null_for_invalid_pattern(node):
        return typed_null(array_of(STRING))
    _refuse_patterns_matching_empty_text(node)
    pattern = _re2_pattern(node.expression)
    return fill_template(
        f"if(isNull(@a) OR isNull(@b), [], {_matches_or_first_groups_sql(pattern, '@a', '@b')})",
        convert_variant_to_text(node.this),
        pattern,
    )


def _translate_regexp_replace(node: exp.Expr) -> exp.Expr:
    if _returns_null_for_invalid_pattern(node) or has_invalid_regexp_rewrite(node):
        return typed_null(STRING)
    new = node.args["replacement"]
    if constant_text(new) != "" and not has_only_anchored_empty_matches(constant_text(node.expression) or "."):
        _refuse_patterns_matching_empty_text(node)
    return fragment_node(
        "replaceRegexpAll({0}, {1}, {2})", convert_variant_to_text(node.this), _re2_pattern(node.expression), new
    )


def _translate_regexp_instr(node: exp.Expr) -> exp.Expr:
    """Translate REGEXP_INSTR by searching the matches in the text one after another, up to the requested match."""
    if _returns_null_for_invalid_pattern(node):
        return typed_null(INT64)
    value, pattern = convert_variant_to_text(node.this), _re2_pattern(node.expression)
    position = node.args.get("position") or fragment_node("toInt64(1)")
    occurrence = node.args.get("occurrence") or fragment_node("toInt64(1)")
    option = node.args.get("option") or fragment_node("toInt64(0)")
    start, count = "greatest(@c, 1)", "greatest(@d, 1)"
    remaining = f"assumeNotNull(substringUTF8(@a, {start}))"
    matches, groups = _whole_matches_sql(pattern, remaining, "@b"), _capturing_group_count(pattern, "@b")
    match = f"{matches}[assumeNotNull({count})]"
    offsets = (
        f"arrayFold((_s, _m) -> tuple(toInt64(_s.1 + positionUTF8(substringUTF8({remaining}, assumeNotNull(_s.1 + 1)), _m) - 1 + lengthUTF8(_m)),"
        f" toInt64(_s.1 + positionUTF8(substringUTF8({remaining}, assumeNotNull(_s.1 + 1)), _m) - 1)),"
        f" arraySlice({matches}, 1, assumeNotNull({count})), tuple(toInt64(0), toInt64(0)))"
    )
    inner = (
        f"if({groups} > 0, {_matches_or_first_groups_sql(pattern, remaining, '@b')}[assumeNotNull({count})], {match})"
        if groups != "0"
        else match
    )
    characters_before = f"({offsets}).2" + (f" + positionUTF8({match}, {inner}) - 1" if groups != "0" else "")
    end = f"if(@e = 1, lengthUTF8({inner}), 0)"
    body = (
        "if(isNull(@a) OR isNull(@b) OR isNull(@c) OR isNull(@d) OR isNull(@e), NULL,"
        f" if({start} > toInt64(lengthUTF8(@a)) OR length({matches}) < {count} OR @b = '', 0, toInt64(@c + {characters_before} + {end})))"
    )
    guard = "(@c < 1 OR @d < 1 OR @e NOT IN (0, 1))"
    return fill_template(
        fail_if_sql(node, guard, _ARGUMENT_NOT_POSITIVE_MESSAGE, body), value, pattern, position, occurrence, option
    )


def _translate_like(node: exp.Expr) -> exp.Expr:
    """Translate LIKE, in which a backslash escapes `%`, `_` and itself, as in ClickHouse.

    NOT LIKE ANY is true if at least one pattern does not match. NOT LIKE ALL is true if no pattern matches.
    """
    value, pattern = convert_variant_to_text(node.this), node.expression
    if isinstance(pattern, (exp.Any, exp.All)):
        is_all = isinstance(pattern, exp.All) is not bool(node.args.get("negate"))
        test = _translate_like_patterns(value, pattern.this, is_all=is_all)
    else:
        test = fragment_node("({0} LIKE {1})", value, pattern)
    return fragment_node("(NOT {0})", test) if node.args.get("negate") else test


def _translate_like_patterns(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    """Translate LIKE ANY and LIKE ALL to OR and AND over the patterns, with three-valued logic."""
    items = _patterns_of_quantifier(inner)
    if len(items) == 1 and not isinstance(inner, exp.Tuple):
        return (
            _translate_like_elements(value, items[0], is_all=is_all)
            if _is_array_or_query(items[0])
            else fragment_node("({0} LIKE {1})", value, items[0])
        )
    joiner = " AND " if is_all else " OR "
    return fragment_node(
        "(" + joiner.join(f"{{0}} LIKE {{{index + 1}}}" for index in range(len(items))) + ")", value, *items
    )


def _patterns_of_quantifier(inner: exp.Expr) -> list[exp.Expr]:
    if isinstance(inner, exp.Tuple):
        return list(inner.expressions)
    return [inner.this] if isinstance(inner, exp.Paren) else [inner]


def _is_array_or_query(pattern: exp.Expr) -> bool:
    return isinstance(pattern, (exp.Query, exp.Unnest)) or kind_of(pattern) is Kind.ARRAY


def _translate_like_elements(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    if isinstance(inner, exp.Query):
        inner = fragment_node("(SELECT groupArray(tuple(COLUMNS('.*'))) FROM ({0}))", inner)
        tests = "arrayMap(_t -> {0} LIKE _t.1, {1})"
    else:
        inner = inner.expressions[0] if isinstance(inner, exp.Unnest) else inner
        tests = "arrayMap(_t -> {0} LIKE _t, {1})"
    folded = f"arrayFold((_x, _y) -> CAST(_x {'AND' if is_all else 'OR'} _y, 'Nullable(Bool)'), {tests}, CAST({'true' if is_all else 'false'}, 'Nullable(Bool)'))"
    return fragment_node(folded, value, inner)


def _translate_contains_substr(node: exp.Expr) -> exp.Expr:
    value = convert_variant_to_text(node.this)
    return _contains_test(
        value, datatype_of(value), fragment_node("lowerUTF8({0})", convert_variant_to_text(node.expression)), depth=0
    )


def _contains_test(value: exp.Expr, datatype: Datatype | None, text: exp.Expr, depth: int) -> exp.Expr:
    """Return a test of whether the value, or any field or element in it, contains the text.

    If none contains the text but one is NULL, the test is NULL.
    """
    name = f"_p{depth}"
    if datatype is None or datatype == STRING:
        return fragment_node("(position(lowerUTF8({0}), {1}) > 0)", value, text)
    if datatype.kind is Kind.STRUCT:
        fields = [
            _contains_test(
                set_datatype(fragment_node(f"tupleElement({{0}}, {index + 1})", copy_tree(value)), field),
                field,
                text,
                depth,
            )
            for index, (_, field) in enumerate(datatype.fields)
        ]
        return fragment_node("(" + " OR ".join(f"{{{index}}}" for index in range(len(fields))) + ")", *fields)
    if datatype.kind is Kind.ARRAY:
        inner = _contains_test(set_datatype(fragment_node(name), datatype.element), datatype.element, text, depth + 1)
        return _any_test_true(fragment_node(f"arrayMap({name} -> {{1}}, {{0}})", value, inner))
    if datatype.kind is Kind.JSON:
        raise_unsupported(value, "CONTAINS_SUBSTR of JSON")
    return _contains_test(cast_to(value, value, STRING), STRING, text, depth)


def _any_test_true(tests: exp.Expr) -> exp.Expr:
    return fill_template("if(has(@a, true), true, if(arrayExists(_x -> isNull(_x), @a), NULL, false))", tests)


RULES = RuleSet(
    by_node_class={
        exp.Like: _translate_like,
        exp.RegexpLike: _translate_regexp_contains,
        exp.RegexpExtract: _translate_regexp_extract,
        exp.RegexpExtractAll: _translate_regexp_extract_all,
        exp.RegexpReplace: _translate_regexp_replace,
        exp.RegexpInstr: _translate_regexp_instr,
        exp.Contains: _translate_contains_substr,
    },
    by_node_class_before_children={
        exp.Contains: strip_contains_substr_lower_calls,
    },
)
