"""The result types of adding to and truncating times: the argument's type, or that in the function's name."""

from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype
from cordwood.sql.typing.datatypes import DATE, DATETIME, TIME, TIMESTAMP
from cordwood.sql.typing.node_types import datatype_of

TIMES: Final = (DATE, DATETIME, TIMESTAMP, TIME)

TYPES_IN_NAME: Final[dict[type[exp.Expr], Datatype]] = {
    exp.TimestampTrunc: TIMESTAMP,
    exp.TimestampAdd: TIMESTAMP,
    exp.TimestampSub: TIMESTAMP,
    exp.DatetimeTrunc: DATETIME,
    exp.DatetimeAdd: DATETIME,
    exp.DatetimeSub: DATETIME,
    exp.DateTrunc: DATE,
    exp.DateAdd: DATE,
    exp.DateSub: DATE,
    exp.TimeTrunc: TIME,
    exp.TimeAdd: TIME,
    exp.TimeSub: TIME,
}

# These convert a DATE to the DATETIME or TIMESTAMP in their name.
_COERCING: Final = (exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub)


def time_arithmetic_type(node: exp.Expr) -> Datatype | None:
    datatype = datatype_of(node.this)
    if datatype is None or datatype not in TIMES or (datatype == DATE and isinstance(node, _COERCING)):
        return TYPES_IN_NAME[type(node)]
    return datatype
