"""TO_JSON and TO_JSON_STRING: each type as BigQuery prints it, derived from its data type."""

import json
from collections.abc import Callable, Mapping

import msgspec
from sqlglot import exp

from cordwood.model.datatype import MOMENTS, Datatype, Kind
from cordwood.sql.bigquery.json_functions import rounds_wide, stringifies_wide
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.rules.time_text import TimeText
from cordwood.sql.rules.vocabulary import Vocabulary

# A template over `@a` for each scalar type.
Scalars = Mapping[Kind, str]


class JsonText(msgspec.Struct, frozen=True):
    """The JSON of values for one engine, without white space.

    `scalars` are for TO_JSON, with a template over `@a` for each scalar type. `texts` replaces those whose numbers may be
    too large for JavaScript, which TO_JSON_STRING prints as texts. `untyped` is for a value whose type is not known, and
    `otherwise` for types without a template. `as_json` makes JSON of its text, and `print_json` a text of TO_JSON_STRING
    by its option `pretty_print`.
    """

    words: Vocabulary
    times: TimeText
    scalars: Scalars
    texts: Scalars
    untyped: str
    otherwise: str
    as_json: Callable[[exp.Expr], exp.Expr]
    print_json: Callable[[exp.Expr, exp.Expr], exp.Expr]

    def text(self, node: exp.Expr, datatype: Datatype | None, scalars: Scalars | None = None) -> exp.Expr:
        """Return the JSON text of a value; never NULL: a missing value is `null`."""
        if isinstance(node, exp.Null):
            return fragment("'null'")
        return self._text_or_null(
            node, datatype, {**self.scalars, **self.texts} if scalars is None else scalars, depth=0
        )

    def _text_or_null(self, node: exp.Expr, datatype: Datatype | None, scalars: Scalars, depth: int) -> exp.Expr:
        return fragment(self.words.or_else("{0}", "'null'"), self._text_of(node, datatype, scalars, depth))

    def _text_of(self, node: exp.Expr, datatype: Datatype | None, scalars: Scalars, depth: int) -> exp.Expr:
        if datatype is None:
            return fragment(self.untyped, node)
        if datatype.kind is Kind.ARRAY:
            name = f"_j{depth}"
            element = self._text_or_null(fragment(name), datatype.element, scalars, depth + 1)
            return self.words.bracketed(node, name, element, ",")
        if datatype.kind is Kind.STRUCT:
            return self._object(node, datatype, scalars, depth)
        if datatype.kind is Kind.INTERVAL:
            unsupported(node, "An INTERVAL as JSON")
        if datatype.kind in (Kind.TIMESTAMP, Kind.DATETIME, Kind.TIME):
            return self.times.json_text(node, datatype.kind)
        return self.words.once(scalars.get(datatype.kind, self.otherwise), node)

    def _object(self, node: exp.Expr, datatype: Datatype, scalars: Scalars, depth: int) -> exp.Expr:
        """Print a struct field by field under the author's names, which may be empty or duplicate."""
        words, name = self.words, f"_s{depth}"
        parts: list[exp.Expr] = []
        for position, (label, field) in enumerate(datatype.fields, 1):
            key = ("," if parts else "{") + json.dumps(label, ensure_ascii=False) + ":"
            value = self._text_or_null(fragment(words.field(name, position)), field, scalars, depth + 1)
            parts += [text_part(key), value]
        body = words.concat(*(f"{{{index}}}" for index in range(1, len(parts) + 1)), "'}'") if parts else "'{}'"
        return fragment(
            words.with_value("{0}", name, words.conditional(words.is_missing(name), "NULL", body)), node, *parts
        )

    def document(self, value: exp.Expr, *, stringifies_wide: bool = False) -> exp.Expr:
        """Return a value as JSON; large numbers stay numbers unless they are to be texts."""
        scalars = None if stringifies_wide else self.scalars
        return self.as_json(self.text(value, datatype_of(value), scalars))

    def _to_json(self, node: exp.Expr) -> exp.Expr:
        if node.args.get("to_json"):
            return self.document(node.this, stringifies_wide=stringifies_wide(node))
        return self.print_json(node, self.text(node.this, datatype_of(node.this)))

    def rules(self) -> RuleSet:
        return RuleSet(nodes={exp.JSONFormat: self._to_json})


def refuse_exact_mode(rule: Rule) -> Rule:
    """Return the rule of FLOAT64(json), which is only supported with rounding."""

    def checked(node: exp.Expr) -> exp.Expr:
        if not rounds_wide(node, default_mode="round"):
            unsupported(node, "FLOAT64 with wide_number_mode => 'exact'")
        return rule(node)

    return checked


def print_times(times: TimeText, rule: Rule) -> Rule:
    """Return the rule of STRING(json), which for a time is that of STRING(timestamp[, zone])."""

    def checked(node: exp.Expr) -> exp.Expr:
        value = node.this if isinstance(node.this, exp.Expr) else node.expressions[0]
        if kind_of(value) not in MOMENTS:
            return rule(node)
        zone = node.args.get("zone") or (node.expressions[1] if len(node.expressions) > 1 else None)
        return times.cast_text(value, zone)

    return checked
