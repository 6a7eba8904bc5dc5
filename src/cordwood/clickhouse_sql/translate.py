"""Translation of ClickHouse expressions to typed BigQuery expressions."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall, call_of
from cordwood.clickhouse_sql.casts import MAP_HINT, cast_to, parse_type_name, type_of
from cordwood.clickhouse_sql.comparisons import (
    COMPARISON_NODES,
    as_number,
    compare_constants,
    compare_values,
    copy_source_position,
    null_test,
    rewrite_tuple_comparison,
    translate_between,
    translate_in,
    translate_like,
)
from cordwood.clickhouse_sql.datetimes import add_interval, add_number_to_time, interval_of, subtract_times, to_datetime
from cordwood.clickhouse_sql.hidden_columns import add_hidden_column_hint
from cordwood.clickhouse_sql.scope import (
    LOG_ATTRIBUTES_COLUMN,
    AttributeForm,
    RowScope,
    all_attributes,
    attribute_reference,
    column_reference,
)
from cordwood.clickhouse_sql.values import (
    BOOL,
    CONDITION_TYPE_NAMES,
    FLAG,
    FLOAT,
    INT,
    INTERVAL,
    MAP,
    NOTHING,
    NUMBER_TYPE_NAMES,
    STRING,
    TIME_TYPE_NAMES,
    ClickHouseType,
    TypedValue,
    array_type_of,
    common_type,
    fill_template,
    flag_value,
    literal_node,
    parenthesize_if_operation,
    text_value,
)
from cordwood.errors import QueryRefused, Span, UnknownNameInQuery
from cordwood.model.definitions import Parameter
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.diagnostics import span_of, start_offset
from cordwood.sql.nodes import internal_call

CallTranslator = Callable[[ArgumentTranslator, FunctionCall], TypedValue]

_LOGS_COLUMN_NAMES_TEXT: Final = "id, timestamp, project, source, event_message, severity_text and log_attributes"


class FilterCondition(msgspec.Struct, frozen=True):
    """A BOOL expression that filters rows or selects a branch of CASE, so that NULL has the same effect as false.

    `constant_value` is the value of the expression if it is known before the query runs.
    """

    node: exp.Expr
    constant_value: bool | None = None


class ExpressionTranslator(msgspec.Struct):
    """The translator of the expressions in a query.

    `row_scope` has the columns in scope. `endpoint_parameters` are the parameters that the endpoint declares.
    """

    query_text: str
    row_scope: RowScope
    translator_by_function: Mapping[str, CallTranslator]
    endpoint_parameters: Mapping[str, Parameter] = {}

    def translate_expression(self, node: exp.Expr) -> TypedValue:
        charge_nodes()
        node = node.unnest()
        rule = _TRANSLATOR_BY_NODE_CLASS.get(type(node))
        if rule is not None:
            return rule(self, node)
        if isinstance(node, exp.Query):
            hint = "Write it in FROM, as in SELECT … FROM (SELECT …), or send two queries."
            raise self.refused_error(node, "A query cannot stand in an expression.", hint)
        call = call_of(node)
        if call is None:
            raise self.refused_error(node, f"{type(node).__name__.upper()} is refused here.")
        return self.translate_call(call)

    def translate_call(self, call: FunctionCall) -> TypedValue:
        function = self.translator_by_function.get(call.name)
        if function is None and call.is_aggregate:
            hint = "Write HAVING for groups, or aggregate in a query in brackets."
            raise self.refused_error(call.node, f"The aggregate {call.display_name} cannot stand here.", hint)
        if function is None:
            raise self.refused_error(call.node, f"The function {call.display_name} cannot be called here.")
        return function(self, call)

    def value_with_default_for_null(self, node: exp.Expr) -> TypedValue:
        """Return the value of the node; if it has a `default`, the default replaces NULL in its expression."""
        return self.translate_expression(node).with_default_for_null()

    def translate_filter_condition(self, node: exp.Expr) -> FilterCondition:
        charge_nodes()
        node = node.unnest()
        if isinstance(node, (exp.And, exp.Or)):
            return self._fold_connector(node)
        if isinstance(node, COMPARISON_NODES):
            return self._comparison_condition(node)
        if isinstance(node, (exp.In, exp.Like, exp.ILike)) and not node.args.get("negate"):
            flag = (
                translate_in(self, node, may_be_null=True)
                if isinstance(node, exp.In)
                else translate_like(self, node, may_be_null=True)
            )
            return _as_condition(flag)
        if isinstance(node, exp.Not):
            inner = self.translate_filter_condition(node.this)
            if inner.constant_value is not None:
                return _constant_condition(not inner.constant_value)
        return _as_condition(self.condition_value(node))

    def condition_value(self, node: exp.Expr) -> TypedValue:
        """Return the node as a condition that can be true, false or NULL; a number is true unless it is 0."""
        value = self.value_with_default_for_null(node)
        if value.type.name in CONDITION_TYPE_NAMES:
            return value
        if value.type.name == "Nothing":
            return TypedValue(exp.Null(), FLAG.as_nullable())
        if value.type.name not in NUMBER_TYPE_NAMES:
            raise self.refused_error(
                node, f"{value.type.with_capital_article} is not a condition.", "Compare it, as in method = 'GET'."
            )
        is_nonzero = exp.NEQ(this=parenthesize_if_operation(value.node), expression=exp.Literal.number(0))
        constant = (
            bool(value.constant_value) if isinstance(value.constant_value, (int, float)) else value.constant_value
        )
        return TypedValue(
            is_nonzero, msgspec.structs.replace(FLAG, is_nullable=value.type.is_nullable), constant_value=constant
        )

    def _fold_connector(self, node: exp.Expr) -> FilterCondition:
        """Return an AND or OR without its constant operands, or the constant if one of them determines the result."""
        deciding = not isinstance(node, exp.And)
        conditions: list[exp.Expr] = []
        for part in _connector_operands(node):
            translated = self.translate_filter_condition(part)
            if translated.constant_value is deciding:
                return _constant_condition(deciding)
            if translated.constant_value is None:
                conditions.append(translated.node)
        if not conditions:
            return _constant_condition(not deciding)
        return FilterCondition(_join_operands(type(node), conditions))

    def _comparison_condition(self, node: exp.Expr) -> FilterCondition:
        if isinstance(node.this, exp.Tuple):
            return self.translate_filter_condition(rewrite_tuple_comparison(self, node))
        left, right = self.translate_expression(node.this), self.translate_expression(node.expression)
        for operand, counterpart in ((left, right), (right, left)):
            # NULL in an operand with a default stands for the default, for example if a map lacks the key. If the
            # comparison is false for the default, the default need not replace NULL in the SQL: the comparison is then
            # NULL, which has the same effect as false in a condition.
            if (
                operand.default_for_null is not None
                and counterpart.is_constant
                and counterpart.type.name == operand.type.name
            ):
                as_default = compare_constants(
                    type(node), operand.default_for_null, counterpart.constant_value, is_swapped=operand is right
                )
                if as_default is False:
                    operand.default_for_null = None
                    break
        return _as_condition(compare_values(self, node, left, right))

    def filter_condition_node(self, node: exp.Expr) -> exp.Expr:
        return self.translate_filter_condition(node).node

    def fill_template(self, node: exp.Expr, template: str, **parts: exp.Expr) -> exp.Expr:
        """Fill a template of BigQuery SQL; the nodes of the template get the position of `node` in the query's text."""
        return fill_template(template, start_offset(node), **parts)

    def span(self, node: exp.Expr) -> Span | None:
        return span_of(node, self.query_text)

    def refused_error(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=add_hidden_column_hint(node, hint), span=self.span(node))

    def string_value(self, node: exp.Expr) -> TypedValue:
        """Return the value of an argument that must be a text."""
        value = self.value_with_default_for_null(node)
        if value.type.name == "Nothing":
            return TypedValue(exp.Null(), STRING.as_nullable())
        if value.type.name != "String":
            raise self.refused_error(
                node, f"A text is wanted here, and this is {value.type.with_article}.", "Convert it with toString(…)."
            )
        return value

    def number_value(self, node: exp.Expr) -> TypedValue:
        """Return the value of an argument that must be a number; a condition counts as 0 or 1."""
        return self.require_number(node, self.value_with_default_for_null(node))

    def require_number(self, node: exp.Expr, value: TypedValue) -> TypedValue:
        """Return the value as a number; if it is not a number, refuse it with the position of `node`."""
        if value.type.name == "Nothing":
            return TypedValue(exp.Null(), INT.as_nullable())
        if value.type.name not in NUMBER_TYPE_NAMES:
            hint = "Convert it with toInt64OrZero(…) or toFloat64OrZero(…)."
            raise self.refused_error(node, f"A number is wanted here, and this is {value.type.with_article}.", hint)
        return as_number(value)

    def array_value(self, node: exp.Expr) -> TypedValue:
        value = self.value_with_default_for_null(node)
        if value.type.name != "Array":
            raise self.refused_error(node, f"An array is wanted here, and this is {value.type.with_article}.")
        return value

    def constant_text(self, node: exp.Expr, subject: str) -> str:
        value = self.translate_expression(node)
        if not isinstance(value.constant_value, str):
            raise self.refused_error(node, f"{subject} must be a text in quotes.")
        return value.constant_value

    def constant_number(self, node: exp.Expr, subject: str) -> float:
        value = self.translate_expression(node)
        if not isinstance(value.constant_value, (int, float)):
            raise self.refused_error(node, f"{subject} must be a number.")
        return value.constant_value


def _as_condition(value: TypedValue) -> FilterCondition:
    if value.is_constant:
        return _constant_condition(bool(value.constant_value))
    return FilterCondition(value.node_with_default_for_null())


def _constant_condition(is_true: bool) -> FilterCondition:  # noqa: FBT001 - the only argument
    return FilterCondition(exp.Boolean(this=is_true), is_true)


def _connector_operands(node: exp.Expr) -> list[exp.Expr]:
    """Return the operands of a chain of ANDs or of ORs; walk it without recursion, because it may be long."""
    kind = type(node)
    pending, operands = [node], []
    while pending:
        current = pending.pop().unnest()
        if isinstance(current, kind):
            pending += [current.expression, current.this]
        else:
            operands.append(current)
    return operands


def _join_operands(kind: type[exp.Expr], parts: Sequence[exp.Expr]) -> exp.Expr:
    joined = _parenthesize_if_connector(parts[0])
    for part in parts[1:]:
        joined = kind(this=joined, expression=_parenthesize_if_connector(part))
    return joined


def _parenthesize_if_connector(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Connector) else node


def _translate_column(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    name = node.name
    value = translator.row_scope.resolve_reference(column_reference(name))
    if value is None and name == LOG_ATTRIBUTES_COLUMN and translator.row_scope.has_attributes:
        # The map of all attributes is not built here, because single keys are read without it. It is built only if the
        # answer contains the map itself.
        return TypedValue(exp.Null(), MAP)
    if value is None:
        raise UnknownNameInQuery(
            f'There is no column "{name[:60]}".',
            hint=f"The table logs has {_LOGS_COLUMN_NAMES_TEXT}; other fields are log_attributes['{name[:60]}'].",
            span=translator.span(node),
        )
    return value


def _translate_literal(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    if node.is_string:
        return text_value(node.this)
    text = str(node.this)
    if text.isdigit():
        if int(text) >= 2**63:
            raise translator.refused_error(node, "The number is too large: whole numbers have 64 bits.")
        return TypedValue(exp.Literal.number(text), INT, constant_value=int(text))
    try:
        number = float(text)
    except ValueError:
        raise translator.refused_error(node, f"{text[:40]} is not a number that can be read here.") from None
    if math.isinf(number):
        raise translator.refused_error(node, "The number is too large: floats have 64 bits.")
    return TypedValue(exp.Literal.number(repr(number)), FLOAT, constant_value=number)


def _translate_boolean(_: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    return TypedValue(exp.Boolean(this=bool(node.this)), BOOL, constant_value=bool(node.this))


def _translate_null(_t: ArgumentTranslator, _node: exp.Expr) -> TypedValue:
    return TypedValue(exp.Null(), NOTHING)


def _translate_negative(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    value = translator.number_value(node.this)
    constant = -value.constant_value if isinstance(value.constant_value, (int, float)) else value.constant_value
    if isinstance(constant, (int, float)):
        return TypedValue(literal_node(constant), value.type, constant_value=constant)
    return TypedValue(exp.Neg(this=parenthesize_if_operation(value.node)), value.type)


def _translate_connector(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    parts = [translator.condition_value(part) for part in _connector_operands(node)]
    type_ = msgspec.structs.replace(FLAG, is_nullable=any(part.type.is_nullable for part in parts))
    if all(part.is_constant for part in parts):
        is_true = (
            all(part.constant_value for part in parts)
            if isinstance(node, exp.And)
            else any(part.constant_value for part in parts)
        )
        return flag_value(is_true=is_true)
    return TypedValue(_join_operands(type(node), [part.node for part in parts]), type_)


def _translate_not(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    value = translator.condition_value(node.this)
    if value.is_constant:
        return flag_value(is_true=not value.constant_value)
    return TypedValue(
        exp.Not(this=exp.Paren(this=value.node)), msgspec.structs.replace(FLAG, is_nullable=value.type.is_nullable)
    )


def _translate_is(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    if not isinstance(node.expression, exp.Null):
        raise translator.refused_error(node, "IS asks for NULL only.", "Write x IS NULL or x = y.")
    return null_test(translator.value_with_default_for_null(node.this))


def _translate_comparison(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    if isinstance(node.this, exp.Tuple):
        return translator.condition_value(rewrite_tuple_comparison(translator, node))
    return compare_values(
        translator, node, translator.translate_expression(node.this), translator.translate_expression(node.expression)
    )


_OPERATOR_SYMBOL_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_IEEE_FUNCTION_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "ieee_add",
    exp.Sub: "ieee_subtract",
    exp.Mul: "ieee_multiply",
}


def apply_arithmetic(
    translator: ArgumentTranslator, node: exp.Expr, kind: type[exp.Expr], left: TypedValue, right: TypedValue
) -> TypedValue:
    """Return the translation of `+`, `-` or `*`, including arithmetic of times and intervals."""
    left, right = left.with_default_for_null(), right.with_default_for_null()
    if INTERVAL in (left.type, right.type):
        return add_interval(translator, node, left, right, is_minus=kind is exp.Sub)
    times = [value for value in (left, right) if value.type.name in TIME_TYPE_NAMES]
    if len(times) == 2 and kind is exp.Sub:
        return subtract_times(translator, node, left, right)
    if times and kind is not exp.Mul:
        return add_number_to_time(translator, node, left, right, is_minus=kind is exp.Sub)
    return _apply_number_arithmetic(translator, node, kind, left, right)


def _apply_number_arithmetic(
    translator: ArgumentTranslator, node: exp.Expr, kind: type[exp.Expr], left: TypedValue, right: TypedValue
) -> TypedValue:
    """Return the translation of `+`, `-` or `*` of numbers; a result of floats that is out of range is infinite."""
    for value in (left, right):
        if value.type.name not in (*NUMBER_TYPE_NAMES, "Nothing"):
            sign = _OPERATOR_SYMBOL_BY_NODE_CLASS[kind]
            hint = "Convert it, as in toInt64OrZero(…)." if value.type.name == "String" else None
            raise translator.refused_error(
                node, f'"{sign}" needs numbers, but this is {value.type.with_article}.', hint
            )
    type_ = common_type(common_type(left.type, INT) or INT, right.type) or INT
    if type_.name == "Float64":
        parts = [convert_to_type(translator, node, value, type_) for value in (left, right)]
        return TypedValue(internal_call(_IEEE_FUNCTION_BY_NODE_CLASS[kind], *parts), type_)
    left, right = as_number(left), as_number(right)
    return TypedValue(
        copy_source_position(
            node, kind(this=parenthesize_if_operation(left.node), expression=parenthesize_if_operation(right.node))
        ),
        type_,
    )


def _translate_arithmetic(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    return apply_arithmetic(
        translator,
        node,
        type(node),
        translator.translate_expression(node.this),
        translator.translate_expression(node.expression),
    )


def apply_division(translator: ArgumentTranslator, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> TypedValue:
    """Return the quotient of two numbers as a Float64, which is infinite or NaN if the divisor is 0."""
    dividend, divisor = translator.number_value(left), translator.number_value(right)
    parts = {"one": as_float(dividend).node, "other": as_float(divisor).node}
    nullable = dividend.type.is_nullable or divisor.type.is_nullable
    return TypedValue(
        translator.fill_template(node, "ieee_divide(@one, @other)", **parts),
        msgspec.structs.replace(FLOAT, is_nullable=nullable),
    )


def as_float(value: TypedValue) -> TypedValue:
    value = as_number(value)
    if value.type.name == "Float64":
        return value
    return TypedValue(
        fill_template("cast(@number as float64)", number=value.node),
        msgspec.structs.replace(FLOAT, is_nullable=value.type.is_nullable),
    )


def apply_modulo(translator: ArgumentTranslator, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> TypedValue:
    dividend, divisor = translator.number_value(left), translator.number_value(right)
    if "Float64" in (dividend.type.name, divisor.type.name):
        raise translator.refused_error(
            node, "The operands of a remainder must be whole numbers.", "Convert them with toInt64(…)."
        )
    type_ = common_type(dividend.type, divisor.type) or INT
    return TypedValue(translator.fill_template(node, "mod(@one, @other)", one=dividend.node, other=divisor.node), type_)


def unify_values(
    translator: ArgumentTranslator, node: exp.Expr, values: Sequence[TypedValue]
) -> tuple[list[exp.Expr], ClickHouseType]:
    """Return the expressions of several values after conversion to a common type, and this type.

    The values may be the branches of CASE, the arguments of a function, or the elements of an array. Maps are refused,
    because the node of a map need not have its values.
    """
    type_: ClickHouseType = NOTHING
    for value in values:
        if value.type.name == "Map":
            raise translator.refused_error(node, "A map cannot stand here.", MAP_HINT)
        wider = common_type(type_, value.type)
        if wider is None:
            hint = "Convert one of them, as in toString(…)."
            raise translator.refused_error(
                node, f"{type_.with_capital_article} and {value.type.with_article} have no type together.", hint
            )
        type_ = wider
    if all(value.type.name == "Nothing" for value in values):
        return [exp.Null() for _ in values], NOTHING
    if not any(value.type.is_nullable for value in values):
        type_ = type_.as_not_null()
    return [convert_to_type(translator, node, value, type_) for value in values], type_


def convert_to_type(
    translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, type_: ClickHouseType
) -> exp.Expr:
    """Return the expression of a value after conversion to `type_`, which must be a wider type."""
    value = value.with_default_for_null()
    if value.type.name == "Nothing":
        return exp.Null()
    if type_.name == "DateTime":
        return to_datetime(translator, node, value).node
    if type_.name == "Float64":
        return as_float(value).node
    if type_.name == "Int64":
        return as_number(value).node
    return value.node


def _translate_case(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    subject = node.args.get("this")
    conditions = []
    for branch in node.args["ifs"]:
        test = (
            exp.EQ(this=copy_tree(subject), expression=copy_tree(branch.this)) if subject is not None else branch.this
        )
        conditions.append(translator.filter_condition_node(test))
    charge_nodes(sum(1 for _ in node.walk()))
    default = node.args.get("default")
    values = [translator.translate_expression(branch.args["true"]) for branch in node.args["ifs"]]
    values.append(translator.translate_expression(default) if default is not None else TypedValue(exp.Null(), NOTHING))
    return build_case(translator, node, conditions, values)


def build_case(
    translator: ArgumentTranslator, node: exp.Expr, conditions: Sequence[exp.Expr], values: Sequence[TypedValue]
) -> TypedValue:
    """Return a CASE whose result is the value for the first condition that holds, or else the last value."""
    nodes, type_ = unify_values(translator, node, values)
    ifs = [exp.If(this=condition, true=value) for condition, value in zip(conditions, nodes[:-1], strict=True)]
    return TypedValue(copy_source_position(node, exp.Case(ifs=ifs, default=nodes[-1])), type_)


def _translate_cast(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    type_node = node.args["to"]
    if isinstance(type_node, exp.DataType):
        return cast_to(
            translator, node, translator.value_with_default_for_null(node.this), type_of(translator, type_node)
        )
    return cast_to(
        translator,
        node,
        translator.value_with_default_for_null(node.this),
        parse_type_name(translator, node, translator.constant_text(type_node, "The name of a type")),
    )


def _translate_subscript(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    """Translate brackets: the value for a key of a map, or the element of an array."""
    if len(node.expressions) != 1:
        raise translator.refused_error(node, "One key or one place is wanted in the brackets.")
    value = translator.translate_expression(node.this)
    key = node.expressions[0]
    if value.type.name == "Map":
        return map_item(translator, node, value, key)
    return array_element(translator, node, value, key)


def map_item(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, key_node: exp.Expr) -> TypedValue:
    """Return the value for a key of a map; if the map does not have the key, return the default of the values' type."""
    key = translator.translate_expression(key_node)
    if key.type.name == "Nothing":
        return TypedValue(exp.Null(), NOTHING)
    if value.map_entries is None:
        if isinstance(key.constant_value, str) and is_json_map(value):
            return TypedValue(internal_call("json_string", value.node, key.node), STRING, default_for_null="")
        if isinstance(key.constant_value, str):
            item = translator.row_scope.resolve_reference(attribute_reference(key.constant_value))
            if item is not None:
                return item
        return _map_item_by_computed_key(translator, node, value, key_node)
    if not isinstance(key.constant_value, str):
        raise translator.refused_error(node, "The key of a map must be a text in quotes.")
    item = next((part for name, part in value.map_entries if name == key.constant_value), None)
    return (
        item
        if item is not None
        else _value_of_missing_key(value.map_entries[0][1].type if value.map_entries else STRING)
    )


_MAX_CONSTANT_MAP_KEYS: Final = 50


def _map_item_by_computed_key(
    translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, key_node: exp.Expr
) -> TypedValue:
    """Return the value of a map for a key that is not constant.

    If the key is the arrayJoin of an array of constants, the attribute of each constant is read at its own path.
    Otherwise, the whole map is built.
    """
    key_node = key_node.unnest()
    if isinstance(key_node, exp.Explode) and isinstance(key_node.this.unnest(), exp.Array) and not is_json_map(value):
        keys = [
            key.this for key in key_node.this.unnest().expressions if isinstance(key, exp.Literal) and key.is_string
        ]
        items = [translator.row_scope.resolve_reference(attribute_reference(key)) for key in keys]
        if (
            0 < len(keys) <= _MAX_CONSTANT_MAP_KEYS
            and len(keys) == len(key_node.this.unnest().expressions)
            and None not in items
        ):
            tests = [exp.EQ(this=copy_tree(key_node), expression=exp.Literal.string(key)) for key in keys]
            return build_case(
                translator,
                node,
                [translator.filter_condition_node(test) for test in tests],
                [*filter(None, items), text_value("")],
            )
    key = translator.string_value(key_node)
    item = TypedValue(
        internal_call("json_member", map_as_json(translator, node, value).node, key.node), STRING, default_for_null=""
    )
    return _null_if_key_is_null(translator, node, key, item)


def _null_if_key_is_null(
    translator: ArgumentTranslator, node: exp.Expr, key: TypedValue, item: TypedValue
) -> TypedValue:
    """Return the item of a map or an array for a key or an index; it is NULL if the key may be NULL, and is."""
    if not key.type.is_nullable:
        return item
    parts = {"key": key.node, "item": item.node_with_default_for_null()}
    return TypedValue(translator.fill_template(node, "if(@key is null, null, @item)", **parts), item.type.as_nullable())


def _value_of_missing_key(type_: ClickHouseType) -> TypedValue:
    """Return the value for a key that the map does not have."""
    if type_.is_nullable:
        return TypedValue(exp.Null(), type_)
    default = default_of_type(type_)
    return text_value("") if default is None else TypedValue(literal_node(default), type_, constant_value=default)


def array_element(
    translator: ArgumentTranslator, node: exp.Expr, value: TypedValue, index_node: exp.Expr
) -> TypedValue:
    """Return an array's element by its index, which is counted from 1; a negative index is counted from the end.

    If the index is out of range, the value is the default of the element's type.
    """
    if value.type.name != "Array" or value.type.element_type is None:
        raise translator.refused_error(node, f"{value.type.with_capital_article} has no elements.")
    index = translator.number_value(index_node)
    element_type = value.type.element_type
    array, position = value.node_with_default_for_null(), index.node
    if isinstance(index.constant_value, (int, float)):
        if index.constant_value < 0:
            array = translator.fill_template(node, "array_reverse(@array)", array=array)
            position = literal_node(-int(index.constant_value))
    else:
        position = translator.fill_template(
            node, "@index + if(@index < 0, array_length(@array) + 1, 0)", index=index.node, array=copy_tree(array)
        )
    bracket = copy_source_position(node, exp.Bracket(this=array, expressions=[position], offset=1, safe=True))
    element = value_with_default_of_type(translator, node, bracket, element_type)
    return _null_if_key_is_null(translator, node, index, element)


def value_with_default_of_type(
    translator: ArgumentTranslator, node: exp.Expr, value: exp.Expr, type_: ClickHouseType
) -> TypedValue:
    """Return a value of the type, with the default of the type in place of NULL; NULL is kept if the type is nullable.

    The value may be an aggregate over no rows, or an array's element whose index is out of range.
    """
    if not type_.is_nullable and type_.name in _DEFAULT_SQL_BY_TYPE:
        template = f"coalesce(@value, {_DEFAULT_SQL_BY_TYPE[type_.name]})"
        return TypedValue(translator.fill_template(node, template, value=value), type_)
    return TypedValue(value, type_, default_for_null=default_of_type(type_))


# The defaults that are not literals.
_DEFAULT_SQL_BY_TYPE: Final = {"DateTime": "timestamp_micros(0)", "Date": "date_from_unix_date(0)"}


def default_of_type(type_: ClickHouseType) -> str | int | float | None:
    """Return the value that ClickHouse uses for a missing value of the type; None for a nullable type and for times."""
    if type_.is_nullable:
        return None
    return _DEFAULT_BY_TYPE.get(type_.name)


_DEFAULT_BY_TYPE: Final[Mapping[str, str | int]] = {"String": "", "Int64": 0, "Float64": 0}


def _translate_array(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    return array_of_values(
        translator, node, [translator.value_with_default_for_null(item) for item in node.expressions]
    )


def array_of_values(translator: ArgumentTranslator, node: exp.Expr, values: Sequence[TypedValue]) -> TypedValue:
    nodes, type_ = unify_values(translator, node, values)
    if type_.name in CONDITION_TYPE_NAMES:
        nodes, type_ = [as_number(value).node for value in values], INT
    if type_.is_nullable and values:
        raise translator.refused_error(
            node, "NULL in an array is not supported.", "Leave it out, or write coalesce(…)."
        )
    return TypedValue(
        copy_source_position(node, exp.Array(expressions=nodes)),
        array_type_of(STRING if type_.name == "Nothing" else type_),
    )


def _translate_interval(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    return interval_of(translator, node, node.this, node.text("unit"))


def _translate_placeholder(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    """Return the value of the endpoint's parameter to which the placeholder `{name:Type}` refers."""
    name = node.name
    if name not in translator.endpoint_parameters:
        declared_names = ", ".join(translator.endpoint_parameters)
        raise UnknownNameInQuery(
            f'There is no parameter "{name[:60]}".', hint=f"There are: {declared_names}.", span=translator.span(node)
        )
    slot = exp.Parameter(this=exp.Var(this=name))
    declared_type = _TYPE_BY_PARAMETER_TYPE.get(str(translator.endpoint_parameters[name].type), STRING)
    return cast_to(
        translator,
        node,
        TypedValue(slot, declared_type.as_nullable()),
        type_of(translator, node.args["kind"]).as_nullable(),
    )


_TYPE_BY_PARAMETER_TYPE: Final = {
    "INT64": INT,
    "FLOAT64": FLOAT,
    "BOOL": BOOL,
    "TIMESTAMP": ClickHouseType("DateTime", fractional_second_digits=6),
    "DATE": ClickHouseType("Date"),
}


def is_json_map(value: TypedValue) -> bool:
    """Return whether the map is stored as a JSON object, because it comes from a derived table."""
    return value.map_entries is None and not isinstance(value.node, exp.Null)


def map_as_json(translator: ArgumentTranslator, node: exp.Expr, value: TypedValue) -> TypedValue:
    """Return a map as a JSON object, which is also the form of a map in the answer."""
    if value.map_entries is None:
        if is_json_map(value):
            return value
        attributes = all_attributes(translator.row_scope, AttributeForm.MAP)
        if attributes is None:
            raise translator.refused_error(node, "The map is not known here.")
        return TypedValue(attributes, MAP)
    arguments: list[exp.Expr] = []
    for key, part in value.map_entries:
        arguments += [exp.Literal.string(key), part.node_with_default_for_null()]
    return TypedValue(internal_call("json_object", *arguments), MAP, map_entries=value.map_entries)


def _translate_tuple(translator: ArgumentTranslator, node: exp.Expr) -> TypedValue:
    raise translator.refused_error(node, "A tuple can be compared only.", "Select the values as columns of their own.")


_NodeTranslator = Callable[[ArgumentTranslator, exp.Expr], TypedValue]

_TRANSLATOR_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], _NodeTranslator]] = {
    exp.Column: _translate_column,
    exp.Literal: _translate_literal,
    exp.Boolean: _translate_boolean,
    exp.Null: _translate_null,
    exp.Neg: _translate_negative,
    exp.And: _translate_connector,
    exp.Or: _translate_connector,
    exp.Not: _translate_not,
    exp.Is: _translate_is,
    **dict.fromkeys(COMPARISON_NODES, _translate_comparison),
    exp.Between: translate_between,
    exp.In: translate_in,
    exp.Like: translate_like,
    exp.ILike: translate_like,
    **dict.fromkeys(_OPERATOR_SYMBOL_BY_NODE_CLASS, _translate_arithmetic),
    exp.Div: lambda translator, node: apply_division(translator, node, node.this, node.expression),
    exp.Mod: lambda translator, node: apply_modulo(translator, node, node.this, node.expression),
    exp.Case: _translate_case,
    exp.Cast: _translate_cast,
    exp.CastToStrType: _translate_cast,
    exp.Bracket: _translate_subscript,
    exp.Array: _translate_array,
    exp.Interval: _translate_interval,
    exp.Placeholder: _translate_placeholder,
    exp.Tuple: _translate_tuple,
}
