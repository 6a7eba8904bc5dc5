"""Keep texts as texts while they are redacted, instead of converting them to VARIANT and back.

No filter looks at a text before it is redacted: the time of a filter would tell whether the text has what is looked for.
"""

from sqlglot import exp

from cordwood.sql.fragment import parts_of
from cordwood.sql.nodes import swap
from cordwood.sql.operations import AsEventValue, AsText, RedactText, does, found_operations


def keep_texts(tree: exp.Expr) -> None:
    """Read a redacted text itself where it would be read as the text of an event's value."""
    for reader, _ in list(found_operations(tree, AsText)):
        value = parts_of(reader)[0].unnest()
        if does(value, AsEventValue) and does(parts_of(value)[0], RedactText):
            swap(reader, parts_of(value)[0])
