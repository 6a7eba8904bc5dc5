"""DuckDB's parse tree as `json_serialize_sql` returns it: the nodes and fields that a compiled statement may have.

A statement with any other node or field cannot be decoded and is refused.
"""

from typing import Literal

import msgspec


class ParseNode(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A node of the tree, with its position in the text if the parser reports one."""

    query_location: int = 0
    query_location_length: int = 0


class QualifiedName(ParseNode):
    path: list[str] = []


# Expressions


class Expression(ParseNode, tag_field="class", kw_only=True):
    alias: str = ""


class Between(Expression, tag="BETWEEN"):
    type: Literal["COMPARE_BETWEEN"]
    input: "AnyExpression"
    lower: "AnyExpression"
    upper: "AnyExpression"


class CaseCheck(ParseNode):
    when_expr: "AnyExpression"
    then_expr: "AnyExpression"


class Case(Expression, tag="CASE"):
    type: Literal["CASE_EXPR"]
    case_checks: list[CaseCheck]
    else_expr: "AnyExpression"


class Cast(Expression, tag="CAST"):
    type: Literal["OPERATOR_CAST"]
    child: "AnyExpression"
    type_expr: "AnyExpression"
    try_cast: bool = False


class ColumnRef(Expression, tag="COLUMN_REF"):
    type: Literal["COLUMN_REF"]
    column_names: list[str]


class Comparison(Expression, tag="COMPARISON"):
    type: Literal[
        "COMPARE_EQUAL",
        "COMPARE_NOTEQUAL",
        "COMPARE_LESSTHAN",
        "COMPARE_GREATERTHAN",
        "COMPARE_LESSTHANOREQUALTO",
        "COMPARE_GREATERTHANOREQUALTO",
        "COMPARE_DISTINCT_FROM",
        "COMPARE_NOT_DISTINCT_FROM",
    ]
    left: "AnyExpression"
    right: "AnyExpression"


class Conjunction(Expression, tag="CONJUNCTION"):
    type: Literal["CONJUNCTION_AND", "CONJUNCTION_OR"]
    children: list["AnyExpression"]


class Constant(Expression, tag="CONSTANT"):
    type: Literal["VALUE_CONSTANT"]
    literal: msgspec.Raw


class Argument(ParseNode):
    expression: "AnyExpression"
    name: str = ""


class Function(Expression, tag="FUNCTION"):
    type: Literal["FUNCTION"]
    function_name: str
    qualified_name: QualifiedName
    arguments: list[Argument] = []
    order_bys: "OrderModifier | None" = None
    filter: "AnyExpression | None" = None
    distinct: bool = False
    is_operator: bool = False


class Lambda(Expression, tag="LAMBDA"):
    type: Literal["LAMBDA"]
    lhs: "AnyExpression"
    expr: "AnyExpression"
    syntax_type: Literal["LAMBDA_KEYWORD"]


class Operator(Expression, tag="OPERATOR"):
    type: Literal[
        "ARRAY_EXTRACT",
        "ARRAY_SLICE",
        "COMPARE_IN",
        "COMPARE_NOT_IN",
        "GROUPING_FUNCTION",
        "OPERATOR_COALESCE",
        "OPERATOR_IS_NOT_NULL",
        "OPERATOR_IS_NULL",
        "OPERATOR_NOT",
        "OPERATOR_TRY",
        "STRUCT_EXTRACT",
    ]
    children: list["AnyExpression"]


class Parameter(Expression, tag="PARAMETER"):
    type: Literal["VALUE_PARAMETER"]
    identifier: str


class PositionalReference(Expression, tag="POSITIONAL_REFERENCE"):
    type: Literal["POSITIONAL_REFERENCE"]
    index: int


class RenamedColumn(ParseNode):
    column: str


class Renaming(ParseNode):
    key: RenamedColumn
    value: str


class Star(Expression, tag="STAR"):
    type: Literal["STAR"]
    relation_name: str = ""
    columns: bool = False
    exclude_list: list[str] = []
    rename_list: list[Renaming] = []


class SubqueryExpression(Expression, tag="SUBQUERY"):
    type: Literal["SUBQUERY"]
    subquery_type: Literal["ANY", "EXISTS", "NOT_EXISTS", "SCALAR"]
    subquery: "Query"
    comparison_type: Literal[
        "COMPARE_EQUAL",
        "COMPARE_NOTEQUAL",
        "COMPARE_LESSTHAN",
        "COMPARE_GREATERTHAN",
        "COMPARE_LESSTHANOREQUALTO",
        "COMPARE_GREATERTHANOREQUALTO",
        "INVALID",
    ]
    child: "AnyExpression | None" = None


class TypeName(Expression, tag="TYPE"):
    type: Literal["TYPE"]
    type_name: str
    qualified_name: QualifiedName
    children: list["AnyExpression"] = []


class Window(Expression, tag="WINDOW"):
    type: str
    function_name: str
    qualified_name: QualifiedName
    start: str
    end: str
    arguments: list[Argument] = []
    partitions: list["AnyExpression"] = []
    orders: list["Order"] = []
    start_expr: "AnyExpression | None" = None
    end_expr: "AnyExpression | None" = None
    ignore_nulls: bool = False
    has_ignore_nulls: bool = False
    distinct: bool = False


AnyExpression = (
    Between
    | Case
    | Cast
    | ColumnRef
    | Comparison
    | Conjunction
    | Constant
    | Function
    | Lambda
    | Operator
    | Parameter
    | PositionalReference
    | Star
    | SubqueryExpression
    | TypeName
    | Window
)


# Modifiers


class Order(ParseNode):
    type: Literal["ASCENDING", "DESCENDING", "ORDER_DEFAULT"]
    null_order: Literal["NULLS FIRST", "NULLS LAST", "ORDER_DEFAULT"]
    expression: AnyExpression


class Modifier(ParseNode, tag_field="type"):
    """A clause that is applied to a query's rows: ORDER BY, LIMIT, DISTINCT."""


class OrderModifier(Modifier, tag="ORDER_MODIFIER"):
    orders: list[Order] = []


class LimitModifier(Modifier, tag="LIMIT_MODIFIER"):
    limit: AnyExpression | None = None
    offset: AnyExpression | None = None


class DistinctModifier(Modifier, tag="DISTINCT_MODIFIER"):
    """DISTINCT without ON; no rule emits DISTINCT ON."""


AnyModifier = OrderModifier | LimitModifier | DistinctModifier


# Relations


class Relation(ParseNode, tag_field="type", kw_only=True):
    alias: str = ""
    column_name_alias: list[str] = []


class TableReference(Relation, tag="BASE_TABLE"):
    table_name: str
    qualified_name: QualifiedName
    schema_name: str = ""
    catalog_name: str = ""


class EmptyFrom(Relation, tag="EMPTY"):
    """The FROM clause of a SELECT without FROM."""


class Join(Relation, tag="JOIN"):
    left: "AnyRelation"
    right: "AnyRelation"
    join_type: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    ref_type: Literal["REGULAR", "CROSS"] = "REGULAR"
    condition: AnyExpression | None = None
    using_columns: list[str] = []
    is_implicit: bool = False


class PivotEntry(ParseNode):
    star_expr: AnyExpression
    alias: str = ""


class PivotColumn(ParseNode):
    entries: list[PivotEntry] = []
    pivot_expressions: list[AnyExpression] = []
    unpivot_names: list[str] = []


class Pivot(Relation, tag="PIVOT"):
    source: "AnyRelation"
    aggregates: list[AnyExpression] = []
    pivots: list[PivotColumn] = []
    unpivot_names: list[str] = []


class SubqueryRelation(Relation, tag="SUBQUERY"):
    subquery: "Query"


class TableFunction(Relation, tag="TABLE_FUNCTION"):
    function: Function
    with_ordinality: str = ""


AnyRelation = TableReference | EmptyFrom | Join | Pivot | SubqueryRelation | TableFunction


# Queries


class CteInfo(ParseNode):
    query_node: "AnyQuery"
    materialized: Literal["CTE_MATERIALIZE_ALWAYS", "CTE_MATERIALIZE_DEFAULT", "CTE_MATERIALIZE_NEVER"]
    aliases: list[str] = []


class Cte(ParseNode):
    key: str
    value: CteInfo


class CteMap(ParseNode):
    map: list[Cte] = []


class QueryNode(ParseNode, tag_field="type", kw_only=True):
    cte_map: CteMap
    modifiers: list[AnyModifier] = []


class SelectNode(QueryNode, tag="SELECT_NODE"):
    select_list: list[AnyExpression]
    from_table: AnyRelation
    aggregate_handling: Literal["STANDARD_HANDLING", "FORCE_AGGREGATES"]
    where_clause: AnyExpression | None = None
    group_expressions: list[AnyExpression] = []
    group_sets: list[list[int]] = []
    having: AnyExpression | None = None
    qualify: AnyExpression | None = None


class SetOperation(QueryNode, tag="SET_OPERATION_NODE"):
    children: list["AnyQuery"]
    setop_type: Literal["UNION", "INTERSECT", "EXCEPT"]
    setop_all: bool = False


class RecursiveCte(QueryNode, tag="RECURSIVE_CTE_NODE"):
    cte_name: str
    left: "AnyQuery"
    right: "AnyQuery"
    union_all: bool = False
    aliases: list[str] = []


AnyQuery = SelectNode | SetOperation | RecursiveCte


class NamedParameter(ParseNode):
    key: str
    value: int


class Query(ParseNode):
    node: AnyQuery
    named_param_map: list[NamedParameter] = []


class ParseResult(ParseNode):
    """The parser's result: statements, or the error."""

    error: bool
    statements: list[Query] = []
    error_type: str = ""
    error_message: str = ""
    error_subtype: str = ""
    position: str = ""
    location: str = ""
