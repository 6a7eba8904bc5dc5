"""The types of times that are moved or cut: that of the time, or the one the function is named for."""

from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype
from cordwood.sql.typing.datatypes import DATE, DATETIME, TIME, TIMESTAMP
from cordwood.sql.typing.marks import datatype_of

TIMES: Final = (DATE, DATETIME, TIMESTAMP, TIME)

DEFAULTS: Final[dict[type[exp.Expr], Datatype]] = {
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

# A DATE is taken for the DATETIME or TIMESTAMP that these ask for.
_COERCING: Final = (exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub)


def moved_or_cut(node: exp.Expr) -> Datatype | None:
    datatype = datatype_of(node.this)
    if datatype is None or datatype not in TIMES or (datatype == DATE and isinstance(node, _COERCING)):
        return DEFAULTS[type(node)]
    return datatype
