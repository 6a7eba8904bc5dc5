"""Limits on the size of values that one function call may create, so that a vector of results stays small.

Engines evaluate thousands of rows at a time (DuckDB 2,048 per thread, ClickHouse up to 65,536) and do not limit the
memory of the results themselves.
"""

from typing import Final

from sqlglot import exp

# For the results of REPEAT, LPAD and RPAD.
MAX_TEXT_BYTES: Final = 16_384
# For texts that are split into characters, which take some 50 bytes each.
MAX_CHARACTERS: Final = 2_048
# For GENERATE_ARRAY and related functions: BigQuery's own limit for an array made once per query, and eleven years of
# days for an array made for each row.
MAX_ELEMENTS: Final = 1_048_575
MAX_ELEMENTS_PER_ROW: Final = 4_096


def max_elements(*bounds: exp.Expr) -> int:
    """Return the limit on an array's elements between these bounds: lower if it is made for each row."""
    return MAX_ELEMENTS_PER_ROW if any(part.find(exp.Column) is not None for part in bounds) else MAX_ELEMENTS
