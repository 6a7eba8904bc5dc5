"""Keep texts as texts while they are redacted, instead of converting them to VARIANT and back.

No filter looks at a text before it is redacted: the time of a filter would tell whether the text has what is looked for.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.redaction import AS_VARIANT
from cordwood.sql.fragment import is_fragment, template_of
from cordwood.sql.redaction.hiding import HIDING_TEXT

_AS_TEXT: Final = "{0}::VARCHAR"


def spare(tree: exp.Expr) -> None:
    for node in filter(is_fragment, tree.find_all(exp.Anonymous)):
        _keep_text(node)


def _keep_text(reader: exp.Expr) -> None:
    """Drop the conversion of a text to a value that is only read as text."""
    value = reader.expressions[1].unnest() if len(reader.expressions) == 2 else None
    template = template_of(reader)
    if value is None or not is_fragment(value) or template.count("{0}") != template.count(_AS_TEXT):
        return
    made = template_of(value)
    if made.startswith(HIDING_TEXT) and made.endswith(AS_VARIANT):
        value.expressions[0].replace(exp.Literal.string(made.removesuffix(AS_VARIANT)))
        reader.expressions[0].replace(exp.Literal.string(template.replace(_AS_TEXT, "{0}")))
