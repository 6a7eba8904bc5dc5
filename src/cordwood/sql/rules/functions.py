"""Functions as rows of tables: the arguments and failures of each, and below them an engine's template.

A `Function` says which arguments a function takes, how each is read, and with which message it fails. An engine's table
has a template for it, in which the arguments are `@a`, `@b`…
"""

from collections.abc import Callable, Mapping

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int
from cordwood.sql.datatypes import kind_of
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet, function_name, unsupported
from cordwood.sql.rules.vocabulary import Vocabulary

Argument = Callable[[Vocabulary, exp.Expr], exp.Expr]
# The class of a function's node, or the name of a function without a class.
Key = type[exp.Expr] | str


class Function(msgspec.Struct, frozen=True):
    """The arguments of a function, and how it fails.

    `message` is that of its own failure, where the condition `is_invalid` is true; an engine's `Checked` replaces the
    condition. Of a function that `attempts`, the engine's failures are NULL inside SAFE. `count` is the index of an
    argument that only fails if it is negative, so that a constant needs no check.
    """

    arguments: tuple[Argument, ...]
    message: str = ""
    is_invalid: str = ""
    attempts: bool = False
    count: int | None = None


class Checked(msgspec.Struct, frozen=True):
    """A template, and the condition under which the function fails instead.

    The engines compute expressions of constants when they plan, also in branches that are not taken. So where the work
    depends on an argument, that argument carries the check: it is `guarded`, and `@checked` in the template.
    """

    is_invalid: str
    value: str
    guarded: str = ""


class Over(msgspec.Struct, frozen=True):
    """A template whose first argument is another expression of it, which is evaluated once."""

    first: str
    template: str | Checked


class ByType(msgspec.Struct, frozen=True):
    """Templates for a first argument of texts, and of bytes."""

    text: str | Checked | Over
    data: str | Checked | Over


Template = str | Checked | Over | ByType


def argument(key: str, kind: Kind | None = None, default: exp.Expr | None = None) -> Argument:
    """Return a reader of a node's argument, converted to a type if one is given; a missing one has a default."""

    def read(words: Vocabulary, node: exp.Expr) -> exp.Expr:
        value = node.args.get(key)
        if not isinstance(value, exp.Expr):
            return (
                unsupported(node, f"{function_name(node)} with these arguments") if default is None else copied(default)
            )
        return value if kind is None else words.read_as(value, kind)

    return read


def event_as(inner: Argument, kind: Kind) -> Argument:
    """Return a reader that converts only events' values to a type."""

    def read(words: Vocabulary, node: exp.Expr) -> exp.Expr:
        value = inner(words, node)
        return words.read_as(value, kind) if kind_of(value) is Kind.VARIANT else value

    return read


def positional(index: int) -> Argument:
    """Return a reader of an argument of a function without a class."""
    return lambda _, node: node.expressions[index]


def table_rules(words: Vocabulary, functions: Mapping[Key, Function], templates: Mapping[Key, Template]) -> RuleSet:
    """Return the rules of functions by an engine's templates."""
    rules = {key: _rule(words, functions[key], template) for key, template in templates.items()}
    return RuleSet(
        nodes={key: rule for key, rule in rules.items() if not isinstance(key, str)},
        by_name={key: rule for key, rule in rules.items() if isinstance(key, str)},
    )


def _rule(words: Vocabulary, function: Function, template: Template) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        arguments = [read(words, node) for read in function.arguments]
        chosen = _choose_by_type(template, arguments)
        value = chosen.value if isinstance(chosen, Checked) else chosen
        is_invalid = chosen.is_invalid if isinstance(chosen, Checked) else function.is_invalid
        if isinstance(chosen, Checked) and chosen.guarded:
            checked = words.fail_if(node, is_invalid, function.message, chosen.guarded)
            value = value.replace("@checked", checked)
        elif is_invalid and not _is_valid_count(function, arguments):
            value = words.fail_if(node, is_invalid, function.message, value)
        if "@" not in value:
            return fragment(value, *arguments)
        return words.attempt(node, value, *arguments) if function.attempts else words.once(value, *arguments)

    return rule


def _choose_by_type(template: Template, arguments: list[exp.Expr]) -> str | Checked:
    """Return the template for these arguments; replaces the first one if the template is over another expression."""
    if isinstance(template, ByType):
        template = template.data if kind_of(arguments[0]) is Kind.BYTES else template.text
    if isinstance(template, Over):
        arguments[0], template = fragment(template.first, arguments[0]), template.template
    return template


def _is_valid_count(function: Function, arguments: list[exp.Expr]) -> bool:
    count = None if function.count is None else constant_int(arguments[function.count])
    return count is not None and count >= 0
