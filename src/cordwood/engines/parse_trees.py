"""Walk an engine's parse tree, whose nodes are decoded as structs; a field that no struct declares is refused."""

from collections.abc import Callable, Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from cordwood.engines.isolation import BreachError
from cordwood.errors import QueryRefused, QueryUnsupported

# The names of the CTEs that are visible at a node.
Scope = frozenset[str]
Children = Iterable[tuple[msgspec.Struct, Scope]]
Visit = Callable[[msgspec.Struct, Scope], Children]

T = TypeVar("T")

_SCALAR_TYPES: Final = (bool, float, int, str, NoneType, msgspec.Raw)


class UnlistedFunctionError(Exception):
    """A function that is not in the engine's list of permitted functions."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def check_functions(inspect: Callable[[], None], is_known: Callable[[str], bool]) -> None:
    """Run `inspect`; an unlisted function raises BreachError if the engine has it, and else QueryUnsupported."""
    try:
        inspect()
    except UnlistedFunctionError as unlisted:
        if is_known(unlisted.name):
            raise BreachError(f"the function {unlisted.name}") from unlisted
        raise QueryUnsupported("This query takes a form that is not supported.") from unlisted


def decode_tree(decoder: msgspec.json.Decoder[T], serialized: bytes | str) -> T:
    """Decode the parser's output as known structs; raise BreachError for an unknown node or field."""
    try:
        return decoder.decode(serialized)
    except msgspec.ValidationError as unknown:
        raise BreachError(f"an unknown node or field: {unknown}") from unknown
    except RecursionError as deep:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from deep


def walk(root: msgspec.Struct, visit: Visit) -> None:
    """Visit each node with its scope; `visit` returns the nodes below it. Iterative, because trees may be deep."""
    pending: list[tuple[msgspec.Struct, Scope]] = [(root, frozenset())]
    while pending:
        pending += visit(*pending.pop())


def children(node: msgspec.Struct, scope: Scope, *excluded: str) -> list[tuple[msgspec.Struct, Scope]]:
    """Return the child structs of a node, those in lists included, each with the scope."""
    nested: list[tuple[msgspec.Struct, Scope]] = []
    for name in _fields(type(node)):
        value = getattr(node, name)
        if not value or name in excluded:
            continue
        if type(value) is list:
            nested.extend([(item, scope) for item in value])
        else:
            nested.append((value, scope))
    return nested


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of the fields that hold structs or lists of structs."""
    return tuple(field.name for field in fields(kind) if not _is_scalar(field.type))


def _is_scalar(kind: object) -> bool:
    if get_origin(kind) in (list, Union, UnionType):
        return all(map(_is_scalar, get_args(kind)))
    return kind in _SCALAR_TYPES or get_origin(kind) is Literal
