"""Rules for relations: UNNEST, joins without a condition, set operations, and aggregates over outer columns."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import type_name_node
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of, set_datatype
from cordwood.sql.lowering import RuleSet, fragment_node, identifier_node


def _translate_unnest(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, (exp.In, exp.Any, exp.All)):
        return node
    array, alias = node.expressions[0], node.args.get("alias") or exp.TableAlias()
    names = [alias.name, *(column.name for column in alias.columns)]
    # If the relation has a name, as in resolved trees, it has a single column, which is the element. Otherwise, the
    # columns are the fields of the struct elements.
    source = _select_elements(array, node.args.get("offset"), names[-1], spread=not alias.name)
    return _add_alias(source, names[0] or names[-1])


def _array_element_type(array: exp.Expr) -> Datatype | None:
    datatype = datatype_of(array)
    return datatype.element if datatype and datatype.kind is Kind.ARRAY else None


def _select_elements(array: exp.Expr, offset: object, name: str, *, spread: bool) -> exp.Expr:
    """Return a sub-query with one row for each element of an array.

    Inside the sub-query, the element is called `_e`. The sub-query's column with the element is called `name`. With
    `spread`, a struct element becomes one column for each of its fields instead. If `offset` is an identifier, a
    further column of that name has the position of the element, counted from 0.
    """
    element = _array_element_type(array)
    is_spread = spread and element is not None and element.kind is Kind.STRUCT
    parts = [array, identifier_node(name or "_element")]
    column = "unnest(_e)" if is_spread else "_e AS {1}"
    if not isinstance(offset, exp.Identifier):
        return fragment_node(f"(SELECT {column} FROM (SELECT unnest({{0}}) AS _e))", *parts)  # noqa: S608 - a template of ours
    numbered = f"(SELECT {column}, _n - 1 AS {{2}} FROM unnest({{0}}) WITH ORDINALITY AS _u(_e, _n))"  # noqa: S608 - ours
    return fragment_node(numbered, *parts, offset)


def _add_alias(source: exp.Expr, relation: str) -> exp.Expr:
    if not relation:
        return source
    return exp.Alias(this=source, alias=exp.to_identifier(relation, quoted=True))


def _translate_set_operation(node: exp.Expr) -> exp.Expr:
    """Translate a set operation: cast structs and arrays in all branches to the types of the result.

    These types have the field names of the first branch.
    """
    for index, datatype in enumerate(node.meta_get("columns") or ()):
        if datatype is not None and datatype.kind in (Kind.STRUCT, Kind.ARRAY):
            for select in set_operation_branches(node):
                _cast_column(select, index, datatype)
    return node


def set_operation_branches(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.SetOperation):
        return [*set_operation_branches(node.this), *set_operation_branches(node.expression)]
    if isinstance(node, exp.Subquery):
        return set_operation_branches(node.this)
    return [node] if isinstance(node, exp.Select) else []


def _cast_column(select: exp.Expr, index: int, datatype: Datatype) -> None:
    if index >= len(select.expressions) or any(item.is_star for item in select.expressions):
        return
    item = select.expressions[index]
    value = item.this if isinstance(item, exp.Alias) else item
    if datatype_of(item) is None or datatype_of(item) == datatype or type_name_node(datatype) is None:
        return
    cast = set_datatype(cast_to(value, set_datatype(copy_tree(value), datatype_of(item)), datatype), datatype)
    value.replace(cast)


def _translate_join(node: exp.Expr) -> exp.Expr:
    """Translate a join without a condition, which BigQuery allows for joins with an array.

    An outer join gets ON true, and an inner join becomes a CROSS JOIN.
    """
    has_no_condition = node.args.get("on") is None and not node.args.get("using")
    if has_no_condition and node.args.get("side"):
        node.set("on", exp.true())
    elif has_no_condition and node.args.get("kind") == "INNER":
        node.set("kind", "CROSS")
    return node


def _compute_outer_aggregates_in_subquery(select: exp.Expr) -> exp.Expr:
    """Make DuckDB compute an aggregate over an outer query's columns in the inner query, as BigQuery does.

    Without this change, DuckDB would compute the aggregate in the outer query.
    """
    relations = _relation_names(select) if select.find_ancestor(exp.Select) is not None else []
    for aggregate in select.find_all(exp.AggFunc) if relations else []:
        columns = list(aggregate.find_all(exp.Column))
        is_outer = columns and not any(column.table in relations for column in columns)
        if is_outer and aggregate.find_ancestor(exp.Select, exp.From, exp.Join) is select:
            _add_relation_reference(columns[0], relations[0])
    return select


def _relation_names(select: exp.Expr) -> list[str]:
    from_ = select.args.get("from_")
    joined = [join.this.alias_or_name for join in select.args.get("joins") or []]
    return [from_.this.alias_or_name, *joined] if from_ is not None else []


def _add_relation_reference(column: exp.Expr, relation: str) -> None:
    """Replace the column by an equal expression that mentions a relation of the inner query.

    DuckDB then computes the aggregate over this expression in the inner query.
    """
    mention = fragment_node("CASE WHEN {1} IS NULL OR true THEN {0} END", copy_tree(column), identifier_node(relation))
    column.replace(set_datatype(mention, datatype_of(column)))


RULES = RuleSet(
    by_node_class_before_children={exp.Select: _compute_outer_aggregates_in_subquery},
    by_node_class={
        exp.Unnest: _translate_unnest,
        exp.Join: _translate_join,
        exp.Union: _translate_set_operation,
        exp.Except: _translate_set_operation,
        exp.Intersect: _translate_set_operation,
    },
)
