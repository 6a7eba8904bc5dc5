"""ClickHouse's parse tree as `parseQueryToJSON` returns it: the nodes and fields that a compiled statement may have.

A statement with any other node or field cannot be decoded and is refused.
"""

from typing import Literal

import msgspec


class Node(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", gc=False):
    """A node of the tree."""


class ExpressionList(Node, tag="ExpressionList"):
    children: list["AnyNode"] = []


# Expressions


class Asterisk(Node, tag="Asterisk"):
    """All columns of the relations that the SELECT reads."""


class ColumnsRegexpMatcher(Node, tag="ColumnsRegexpMatcher"):
    pattern: str


class Function(Node, tag="Function"):
    name: str
    arguments: ExpressionList | None = None
    parameters: ExpressionList | None = None
    alias: str = ""
    kind: Literal["LAMBDA_FUNCTION", "WINDOW_FUNCTION", ""] = ""
    is_operator: bool = False
    is_lambda_function: bool = False
    is_window_function: bool = False
    window_definition: "WindowDefinition | None" = None
    window_name: str = ""


class Identifier(Node, tag="Identifier"):
    name: str
    name_parts: list[str] = []
    alias: str = ""


class Constant(Node, tag="Literal"):
    value: msgspec.Raw
    alias: str = ""


class QueryParameter(Node, tag="QueryParameter"):
    name: str
    param_type: str
    alias: str = ""


class Subquery(Node, tag="Subquery"):
    children: list["SelectWithUnionQuery"]
    alias: str = ""


class OrderByElement(Node, tag="OrderByElement"):
    expression: "AnyNode"
    direction: int
    nulls_direction: int
    nulls_direction_was_explicitly_specified: bool = False


class WindowDefinition(Node, tag="WindowDefinition"):
    partition_by: ExpressionList | None = None
    order_by: ExpressionList | None = None
    parent_window_name: str = ""
    frame_is_default: bool = False
    frame_type: str = ""
    frame_begin_type: str = ""
    frame_begin_preceding: bool = False
    frame_begin_offset: "AnyNode | None" = None
    frame_end_type: str = ""
    frame_end_preceding: bool = False
    frame_end_offset: "AnyNode | None" = None


class WindowListElement(Node, tag="WindowListElement"):
    name: str
    definition: WindowDefinition


# Relations


class TableIdentifier(Node, tag="TableIdentifier"):
    name: str
    name_parts: list[str] = []
    alias: str = ""


class TableExpression(Node, tag="TableExpression"):
    database_and_table_name: TableIdentifier | None = None
    subquery: Subquery | None = None
    column_aliases: ExpressionList | None = None


class TableJoin(Node, tag="TableJoin"):
    kind: Literal["COMMA", "CROSS", "FULL", "INNER", "LEFT", "RIGHT"]
    on_expression: "AnyNode | None" = None
    using_expression_list: ExpressionList | None = None


class ArrayJoin(Node, tag="ArrayJoin"):
    kind: Literal["Inner", "Left"]
    expression_list: ExpressionList


class TablesElement(Node, tag="TablesInSelectQueryElement"):
    table_expression: TableExpression | None = None
    table_join: TableJoin | None = None
    array_join: ArrayJoin | None = None


class Tables(Node, tag="TablesInSelectQuery"):
    children: list[TablesElement]


# Queries


class SettingValue(msgspec.Struct, forbid_unknown_fields=True):
    field_type: str
    value: bool | int | float | str | None


class Setting(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: SettingValue


class SetQuery(Node, tag="SetQuery"):
    changes: list[Setting]


class WithElement(Node, tag="WithElement"):
    name: str
    subquery: Subquery


class SelectQuery(Node, tag="SelectQuery"):
    select: ExpressionList
    with_: ExpressionList | None = msgspec.field(default=None, name="with")
    recursive_with: bool = False
    distinct: bool = False
    tables: Tables | None = None
    where: "AnyNode | None" = None
    group_by: ExpressionList | None = None
    group_by_all: bool = False
    group_by_with_cube: bool = False
    group_by_with_grouping_sets: bool = False
    group_by_with_rollup: bool = False
    having: "AnyNode | None" = None
    window: ExpressionList | None = None
    qualify: "AnyNode | None" = None
    order_by: ExpressionList | None = None
    limit_length: "AnyNode | None" = None
    limit_offset: "AnyNode | None" = None
    settings: SetQuery | None = None


class SelectWithUnionQuery(Node, tag="SelectWithUnionQuery"):
    union_mode: str
    list_of_selects: ExpressionList
    list_of_modes: list[str] = []
    settings_ast: SetQuery | None = None
    is_outfile_append: bool = False
    is_outfile_truncate: bool = False
    is_into_outfile_with_stdout: bool = False


AnyNode = (
    Asterisk
    | ColumnsRegexpMatcher
    | ExpressionList
    | Function
    | Identifier
    | Constant
    | OrderByElement
    | QueryParameter
    | SelectQuery
    | SelectWithUnionQuery
    | Subquery
    | WindowListElement
    | WithElement
)
