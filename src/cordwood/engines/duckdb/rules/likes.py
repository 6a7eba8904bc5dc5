"""LIKE, with the backslash as its escape, over one pattern or several, and COLLATE."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.strings import as_text, is_bytes
from cordwood.sql.constants import constant_text, is_null
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, unsupported


def _collate(node: exp.Expr) -> exp.Expr:
    """Lower COLLATE; case-insensitivity uses DuckDB's own collation."""
    name = constant_text(node.expression)
    if name == "und:ci":
        return fragment("{0} COLLATE NOCASE", node.this)
    value: exp.Expr = node.this
    return value if name == "" or is_null(node.expression) else unsupported(node, f"The collation '{name}'")


def _like(node: exp.Expr) -> exp.Expr:
    """Lower LIKE; NOT LIKE ANY is true if one pattern does not match, NOT LIKE ALL if none matches."""
    test = _like_test(node)
    return fragment("(NOT {0})", test) if node.args.get("negate") else test


def _like_test(node: exp.Expr) -> exp.Expr:
    """Return the test by LIKE; a backslash escapes `%`, `_` and itself."""
    value, pattern = as_text(node.this), node.expression
    if isinstance(pattern, (exp.Any, exp.All)):
        is_all = isinstance(pattern, exp.All) is not bool(node.args.get("negate"))
        return _like_several(value, pattern.this, is_all=is_all)
    if is_bytes(value):
        unsupported(node, "LIKE of BYTES")
    literal_text = constant_text(pattern)
    if literal_text is not None and "\\" not in literal_text:
        return exp.Like(this=value, expression=pattern)
    return fragment("{0} LIKE {1} ESCAPE '\\'", value, pattern)


def _like_several(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    """Lower `LIKE ANY (…)` with three-valued logic, as OR or AND over the patterns."""
    if isinstance(inner, exp.Tuple):
        items = inner.expressions
    elif isinstance(inner, exp.Paren):
        items = [inner.this]
    else:
        return _like_elements(value, inner, is_all=is_all)
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return _like_elements(value, items[0], is_all=is_all)
    joiner = " AND " if is_all else " OR "
    template = joiner.join(f"({{0}} LIKE {{{index + 1}}} ESCAPE '\\')" for index in range(len(items)))
    return fragment(f"({template})", value, *items)


# Each pattern of an array, or of a query's rows, and whether the value matches it.
_MATCHES_OF_ARRAY: Final = "(SELECT {0} LIKE _p ESCAPE '\\' AS _m FROM (SELECT unnest({1}) AS _p))"
_MATCHES_OF_QUERY: Final = "(SELECT {0} LIKE _p ESCAPE '\\' AS _m FROM {1} AS _q(_p))"


def _like_elements(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    template = _MATCHES_OF_QUERY if isinstance(inner, exp.Query) else _MATCHES_OF_ARRAY
    if isinstance(inner, exp.Unnest):
        inner = inner.expressions[0]
    decisive, undecided = ("NOT bool_and(_m)", "true") if is_all else ("bool_or(_m)", "false")
    result = f"CASE WHEN {decisive} THEN {'false' if is_all else 'true'} WHEN count(*) = count(_m) THEN {undecided} END"
    return fragment("(SELECT {0} FROM {1})", fragment(result), fragment(template, value, inner))


RULES = RuleSet(nodes={exp.Collate: _collate, exp.Like: _like})
