"""Admission check: accept a single query made only of allow-listed syntax and functions; refuse everything else."""

from collections.abc import Collection, Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import QueryFault, QueryRefused, QuerySyntax, QueryUnsupported
from cordwood.sql.budget import spend
from cordwood.sql.clause_checks import find_clause_mistake
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.permitted import FUNCTIONS, FUNCTIONS_WITHOUT_WRITTEN_NAME, PERMITTED_NODES, UNSUPPORTED_FUNCTIONS
from cordwood.sql.positions import span_of
from cordwood.sql.stages import Admitted, Parsed

_FUNCTION_NAMESPACES: Final[Mapping[type[exp.Expr], str]] = {exp.NetFunc: "NET.", exp.SafeFunc: ""}

# The only functions that accept named arguments, as in `MAKE_INTERVAL(day => 1)`.
_FUNCTIONS_WITH_NAMED_ARGUMENTS: Final = (
    *(exp.MakeInterval, exp.JSONSet, exp.JSONStripNulls, exp.JSONFormat, exp.ParseJSON, exp.Float64),
)


def admit(parsed: Parsed, internal_functions: Collection[str] = ()) -> Admitted:
    """Return the checked query; raise QueryRefused at the first node that is not allow-listed.

    The error has the node's position and says what is allowed. `internal_functions` are internal functions that trees
    translated from another language may also call.
    """
    if not isinstance(parsed.tree, (exp.Select, exp.SetOperation, exp.Subquery)):
        kind = type(parsed.tree).__name__.upper()
        raise _refused_error(
            parsed.tree, parsed.text, f"{kind} is refused: only a query can be sent.", "Send one SELECT."
        )
    for node in parsed.tree.walk():
        spend()
        if not (isinstance(node, exp.Anonymous) and _anonymous_function_name(node) in internal_functions):
            _check_node(node, parsed.text)
        node.comments = None
    for node in parsed.tree.walk():
        _check_clauses(node, parsed.text)
    return Admitted(parsed.tree, parsed.text)


def _check_node(node: exp.Expr, text: str) -> None:
    if isinstance(node, exp.Anonymous):
        _check_function(node, _anonymous_function_name(node), text)
    elif isinstance(node, exp.Func) and type(node).__name__ not in PERMITTED_NODES:
        _check_known_function(node, text)
    elif not _is_permitted_node(node):
        raise _unpermitted_node_error(node, text)
    elif isinstance(node, exp.Dot):
        _check_dot_member(node, text)
    elif isinstance(node, exp.Select) and node.args.get("into"):
        raise _refused_error(node, text, "SELECT INTO is refused.", "Send one SELECT.")


def _check_clauses(node: exp.Expr, text: str) -> None:
    mistake = find_clause_mistake(node)
    if mistake:
        raise QuerySyntax(f"{mistake}.", span=span_of(node, text))


def _is_permitted_node(node: exp.Expr) -> bool:
    if isinstance(node, exp.Kwarg):
        return isinstance(node.parent, _FUNCTIONS_WITH_NAMED_ARGUMENTS)
    return type(node).__name__ in PERMITTED_NODES


def _check_dot_member(node: exp.Expr, text: str) -> None:
    """Check the member after a dot: a field, `*` or a call. Refuse `a.b(…)`, which calls a function of a dataset."""
    if not isinstance(node.expression, (exp.Identifier, exp.Star, exp.Anonymous, exp.Func)):
        raise _refused_error(node, text, "This cannot stand after a dot.", None)
    if isinstance(node.expression, exp.Func):
        name = ".".join(part.name for part in node.flatten() if part.name)
        raise _unknown_function_error(node, name.upper(), text)


def _anonymous_function_name(node: exp.Expr) -> str:
    name = node.this if isinstance(node.this, str) else node.this.name
    return f"{_function_namespace(node)}{name}".upper()


def _function_namespace(node: exp.Expr) -> str:
    return _FUNCTION_NAMESPACES.get(type(node.parent), "") if node.parent is not None else ""


def _check_known_function(node: exp.Expr, text: str) -> None:
    written_name = node.meta.get("bigquery_name")
    if written_name:
        _check_function(node, f"{_function_namespace(node)}{written_name}".upper(), text)
    elif type(node).__name__ not in FUNCTIONS_WITHOUT_WRITTEN_NAME:
        _check_function(node, _written_function_name(node, text), text)


def _written_function_name(node: exp.Expr, text: str) -> str:
    """Return the function's name as the author wrote it, or sqlglot's name if the node has no position."""
    if "start" in node.meta and "end" in node.meta:
        return text[node.meta["start"] : node.meta["end"] + 1].strip("`").upper()
    return node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()


def _check_function(node: exp.Expr, name: str, text: str) -> None:
    if name not in FUNCTIONS:
        raise _unknown_function_error(node, name, text)


def _unknown_function_error(node: exp.Expr, name: str, text: str) -> QueryFault:
    if name in UNSUPPORTED_FUNCTIONS or name.startswith("ST_"):
        return QueryUnsupported(f"The function {name} is not supported.", span=span_of(node, text))
    closest_name = nearest(name, FUNCTIONS)
    hint = (
        f"Did you mean {closest_name}?"
        if closest_name
        else "The functions that can be called are listed in the reference."
    )
    return _refused_error(node, text, f"The function {name} cannot be called here.", hint)


def _refused_error(node: exp.Expr, text: str, message: str, hint: str | None) -> QueryRefused:
    return QueryRefused(message, hint=hint, span=span_of(node, text))


def _unpermitted_node_error(node: exp.Expr, text: str) -> QueryFault:
    function = node.parent
    if isinstance(node, exp.Kwarg) and function is not None:
        name = str(function.meta_get("bigquery_name") or _split_class_name(type(function).__name__)).upper()
        return QueryUnsupported(f"{name} with {node.this.name} => is not supported.", span=span_of(node, text))
    subject = _split_class_name(type(node).__name__)
    return _refused_error(
        node, text, f"{subject} is refused here.", "Send one SELECT over the sub-queries of the endpoint."
    )


def _split_class_name(name: str) -> str:
    return "".join(f" {letter}" if letter.isupper() and index else letter for index, letter in enumerate(name)).upper()
