"""How much one call of a function may make, so that a vector of calls stays small.

An engine computes some thousand rows at a time, and counts what functions make for them to no limit of its own:
DuckDB takes 2,048 rows a thread, ClickHouse up to 65,536.
"""

from typing import Final

from sqlglot import exp

# Of REPEAT, LPAD and RPAD.
MOST_TEXT_BYTES: Final = 16_384
# Of what is taken apart into its characters: each takes some 50 bytes meanwhile.
MOST_CHARACTERS: Final = 2_048
# Of GENERATE_ARRAY and its kin: BigQuery's bound where it is made once, and for each row eleven years of days.
MOST_ELEMENTS: Final = 1_048_575
MOST_ELEMENTS_OF_A_ROW: Final = 4_096


def most_elements(*bounds: exp.Expr) -> int:
    """Return how many elements an array between these bounds may have: fewer where each row makes its own."""
    return MOST_ELEMENTS_OF_A_ROW if any(part.find(exp.Column) is not None for part in bounds) else MOST_ELEMENTS
