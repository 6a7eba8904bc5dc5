"""LIKE, with the backslash as its escape, over one pattern or several, and collations."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.strings import as_text, is_bytes
from cordwood.sql.constants import constant_text, is_null
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, unsupported


def _collate(node: exp.Expr) -> exp.Expr:
    """Ignoring case is done by the engine's own collation."""
    name = constant_text(node.expression)
    if name == "und:ci":
        return fragment("{0} COLLATE NOCASE", node.this)
    value: exp.Expr = node.this
    return value if name == "" or is_null(node.expression) else unsupported(node, f"The collation '{name}'")


def _like(node: exp.Expr) -> exp.Expr:
    matched = _matched(node)
    return fragment("(NOT {0})", matched) if node.args.get("negate") else matched


def _matched(node: exp.Expr) -> exp.Expr:
    """A backslash takes the meaning from `%`, `_` and itself."""
    value, pattern = as_text(node.this), node.expression
    if isinstance(pattern, (exp.Any, exp.All)):
        return _like_several(value, pattern)
    if is_bytes(value):
        unsupported(node, "LIKE of BYTES")
    spelled = constant_text(pattern)
    if spelled is not None and "\\" not in spelled:
        return exp.Like(this=value, expression=pattern)
    return fragment("{0} LIKE {1} ESCAPE '\\'", value, pattern)


def _like_several(value: exp.Expr, quantified: exp.Expr) -> exp.Expr:
    """`LIKE ANY (…)`: three-valued, as OR (or AND) over the patterns."""
    inner = quantified.this
    every = isinstance(quantified, exp.All)
    if isinstance(inner, exp.Tuple):
        items = inner.expressions
    elif isinstance(inner, exp.Paren):
        items = [inner.this]
    else:
        return _like_listed(value, inner, every=every)
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return _like_listed(value, items[0], every=every)
    joiner = " AND " if every else " OR "
    template = joiner.join(f"({{0}} LIKE {{{at + 1}}} ESCAPE '\\')" for at in range(len(items)))
    return fragment(f"({template})", value, *items)


def _like_listed(value: exp.Expr, inner: exp.Expr, *, every: bool) -> exp.Expr:
    name = "bool_and" if every else "bool_or"
    source = "(SELECT unnest({1}) AS _p)" if not isinstance(inner, exp.Query) else "{1} AS _q(_p)"
    if isinstance(inner, exp.Unnest):
        inner = inner.expressions[0]
    fallback = "true" if every else "false"
    matched = f"{name}({{0}} LIKE _p ESCAPE '\\')"
    found = f"CASE WHEN count(*) = 0 THEN {fallback} ELSE {matched} END"
    return fragment(f"(SELECT {found} FROM {source})", value, inner)  # noqa: S608 - a template of ours


MEANING = Meaning(nodes={exp.Collate: _collate, exp.Like: _like})
