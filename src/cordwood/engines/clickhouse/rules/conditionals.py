"""CASE, IF, COALESCE, NULLIF and ERROR: branches are converted to their common type."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import null_of, type_part
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.engines.clickhouse.rules.comparison import common_kind
from cordwood.model.datatype import EXACT, Datatype, Kind
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_text, is_null
from cordwood.sql.fragment import fragment, holes, quoted_constant
from cordwood.sql.lowering import RAISED, RuleSet, is_safe
from cordwood.sql.typing import datatype_of, kind_of

_CONVERTED = (Kind.STRUCT, Kind.ARRAY, *EXACT)


def branch(value: exp.Expr | None, conditional: exp.Expr) -> exp.Expr:
    """Return one of several values converted to their common type."""
    datatype = datatype_of(conditional)
    if value is None or isinstance(value, exp.Null):
        return null_of(datatype)
    return _as_branch(value, datatype) if datatype is not None else value


def _as_branch(value: exp.Expr, datatype: Datatype) -> exp.Expr:
    name = type_part(datatype)
    if name is not None and datatype.kind in _CONVERTED and datatype_of(value) != datatype:
        return fragment("CAST({0}, {1})", value, name)
    if kind_of(value) is Kind.VARIANT and datatype.kind is Kind.INT64:
        return fragment("toInt64({0})", read_as(value, Kind.FLOAT64))
    return read_as(value, datatype.kind)


def _boolean(condition: exp.Expr) -> exp.Expr:
    return read_as(condition, Kind.BOOL) if kind_of(condition) is Kind.VARIANT else condition


def _case(node: exp.Expr) -> exp.Expr:
    subject, branches = node.this, node.args["ifs"]
    kind = common_kind([kind_of(subject), *(kind_of(branch_.this) for branch_ in branches)]) if subject else None
    parts: list[exp.Expr] = []
    for branch_ in branches:
        parts += [_condition(subject, branch_.this, kind), branch(branch_.args["true"], node)]
    parts.append(branch(node.args.get("default"), node))
    return fragment(f"multiIf({holes(len(parts))})", *parts)


def _condition(subject: exp.Expr | None, condition: exp.Expr, kind: Kind | None) -> exp.Expr:
    if subject is None:
        return _boolean(condition)
    left, right = (read_as(side, kind) if kind else side for side in (copied(subject), condition))
    return fragment("{0} = {1}", left, right)


def _if(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, exp.Case) and node.arg_key == "ifs":
        return node
    return fragment(
        "if({0}, {1}, {2})", _boolean(node.this), branch(node.args["true"], node), branch(node.args.get("false"), node)
    )


def _coalesce(node: exp.Expr) -> exp.Expr:
    parts = [branch(part, node) for part in (node.this, *node.expressions) if not is_null(part)]
    if not parts:
        return null_of(datatype_of(node))
    if kind_of(node) is Kind.ARRAY:
        return parts[0]
    return fragment(f"coalesce({holes(len(parts))})", *parts)


def _as_case(node: exp.Expr) -> exp.Expr:
    """Rewrite COALESCE with ERROR as CASE.

    ClickHouse evaluates all arguments of COALESCE, but only the chosen branch of CASE.
    """
    *parts, last = node.this, *node.expressions
    if not parts or not any(str(call.this).upper() == "ERROR" for call in last.find_all(exp.Anonymous)):
        return node
    ifs = [exp.If(this=exp.Not(this=exp.Is(this=copied(part), expression=exp.Null())), true=part) for part in parts]
    return exp.Case(ifs=ifs, default=last)


def _nullif(node: exp.Expr) -> exp.Expr:
    left, right = node.this, node.expression
    kind = common_kind([kind_of(left), kind_of(right)])
    if kind is not None and kind_of(left) is Kind.VARIANT:
        return fragment("if({0} = {1}, NULL, {2})", read_as(left, kind), right, copied(left))
    return fragment("nullIf({0}, {1})", left, read_as(right, kind) if kind else right)


def _error(node: exp.Expr) -> exp.Expr:
    """Lower ERROR; ClickHouse raises only constant messages, so a computed message is replaced by a general one."""
    if is_safe(node):
        return exp.Null()
    message = node.expressions[0]
    text = "{0}" if constant_text(message) is not None else quoted_constant(_COMPUTED_MESSAGE)
    return fragment(f"throwIf(isNotNull({{0}}) OR isNull({{0}}), concat({quoted_constant(RAISED)}, {text}))", message)


_COMPUTED_MESSAGE = "ERROR, with a sentence that is worked out and cannot be told"


RULES = RuleSet(
    nodes={exp.Case: _case, exp.If: _if, exp.Coalesce: _coalesce, exp.Nullif: _nullif},
    by_name={"ERROR": _error},
    before_children={exp.Coalesce: _as_case},
)
