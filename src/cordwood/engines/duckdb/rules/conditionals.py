"""CASE, IF, COALESCE, NULLIF and ERROR: branches are converted to their common type."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.engines.duckdb.rules.comparison import common_kind, positional
from cordwood.model.datatype import Kind
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, quoted_constant
from cordwood.sql.lowering import RAISED, RuleSet, is_safe
from cordwood.sql.typing import datatype_of, kind_of


def _branch(branch: exp.Expr | None, conditional: exp.Expr) -> exp.Expr | None:
    datatype = datatype_of(conditional)
    if branch is None or datatype is None:
        return branch
    if datatype.kind is Kind.STRUCT:
        return positional(branch, datatype)
    if kind_of(branch) is Kind.VARIANT and datatype.kind is Kind.INT64:
        return fragment("CAST({0} AS BIGINT)", read_as(branch, Kind.FLOAT64))
    return read_as(branch, datatype.kind)


def _boolean(condition: exp.Expr) -> exp.Expr:
    return read_as(condition, Kind.BOOL) if kind_of(condition) is Kind.VARIANT else condition


def _case(node: exp.Expr) -> exp.Expr:
    subject = node.this
    for branch in node.args["ifs"]:
        if subject is None:
            branch.set("this", _boolean(branch.this))
        elif kind_of(subject) is Kind.STRUCT:
            branch.set("this", positional(branch.this, datatype_of(subject)))
        branch.set("true", _branch(branch.args["true"], node))
    kind = common_kind([kind_of(subject), *(kind_of(branch.this) for branch in node.args["ifs"])]) if subject else None
    if kind is not None:
        node.set("this", read_as(subject, kind))
        for branch in node.args["ifs"]:
            branch.set("this", read_as(branch.this, kind))
    node.set("default", _branch(node.args.get("default"), node))
    return node


def _if(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, exp.Case) and node.arg_key == "ifs":
        return node
    otherwise = _branch(node.args.get("false"), node) or exp.Null()
    then = _branch(node.args["true"], node)
    return fragment("CASE WHEN {0} THEN {1} ELSE {2} END", _boolean(node.this), then or exp.Null(), otherwise)


def _coalesce(node: exp.Expr) -> exp.Expr:
    parts = [_branch(part, node) or part for part in (node.this, *node.expressions)]
    return exp.Coalesce(this=parts[0], expressions=parts[1:])


def _nullif(node: exp.Expr) -> exp.Expr:
    left, right = node.this, node.expression
    kind = common_kind([kind_of(left), kind_of(right)])
    if kind is not None and kind_of(left) is Kind.VARIANT:
        return fragment("CASE WHEN {0} = {1} THEN NULL ELSE {2} END", read_as(left, kind), right, copied(left))
    return exp.Nullif(this=left, expression=read_as(right, kind) if kind else right)


def _error(node: exp.Expr) -> exp.Expr:
    if is_safe(node):
        return fragment("NULL")
    return fragment(f"error({quoted_constant(RAISED)} || {{0}})", node.expressions[0])


RULES = RuleSet(
    nodes={exp.Case: _case, exp.If: _if, exp.Coalesce: _coalesce, exp.Nullif: _nullif}, by_name={"ERROR": _error}
)
