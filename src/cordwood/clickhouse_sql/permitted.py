"""The allow-list of the dialect's syntax and functions. Data only; anything that is not listed is refused."""

from collections.abc import Mapping
from typing import Final


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Permitted syntax by the class of sqlglot's node, with the node's permitted arguments.
NODES: Final[Mapping[str, frozenset[str]]] = {
    "Add": _words("this expression"),
    "Alias": _words("this alias"),
    "And": _words("this expression"),
    "Array": _words("expressions"),
    "Between": _words("this low high negate"),
    "Boolean": _words("this"),
    "Bracket": _words("this expressions offset"),
    "CTE": _words("this alias scalar"),
    "Case": _words("this ifs default"),
    "Cast": _words("this to"),
    "CastToStrType": _words("this to"),
    "Column": _words("this table"),
    "DataType": _words("this expressions nullable nested"),
    "DataTypeParam": _words("this"),
    "Distinct": _words("expressions"),
    "Div": _words("this expression"),
    "EQ": _words("this expression"),
    "From": _words("this"),
    "GT": _words("this expression"),
    "GTE": _words("this expression"),
    "Group": _words("expressions all"),
    "Having": _words("this"),
    "Identifier": _words("this quoted"),
    "ILike": _words("this expression negate"),
    "In": _words("this expressions"),
    "Interval": _words("this unit"),
    "Is": _words("this expression"),
    "JSONPath": _words("expressions"),
    "JSONPathKey": _words("this"),
    "JSONPathRoot": frozenset(),
    "JSONPathSubscript": _words("this"),
    "LT": _words("this expression"),
    "LTE": _words("this expression"),
    "Like": _words("this expression negate"),
    "Limit": _words("expression"),
    "Literal": _words("this is_string"),
    "Mod": _words("this expression"),
    "Mul": _words("this expression"),
    "NEQ": _words("this expression"),
    "Neg": _words("this"),
    "Not": _words("this"),
    "Null": frozenset(),
    "Offset": _words("expression"),
    "Or": _words("this expression"),
    "Order": _words("expressions"),
    "Ordered": _words("this desc nulls_first"),
    "Paren": _words("this"),
    "Placeholder": _words("this kind"),
    "Select": _words("expressions from_ where group having order limit offset distinct with_"),
    "Sub": _words("this expression"),
    "Subquery": _words("this alias"),
    "Table": _words("this alias"),
    "TableAlias": _words("this"),
    "Tuple": _words("expressions"),
    "Union": _words("this expression distinct"),
    "Var": _words("this"),
    "Where": _words("this"),
    "With": _words("expressions"),
}

# Permitted functions by name in lower case, with ClickHouse's spelling. ClickHouse accepts some in any case; no two of
# these differ only in case.
FUNCTIONS: Final[Mapping[str, str]] = {
    name.lower(): name
    for name in """
        abs addDays addHours addMinutes addMonths addQuarters addSeconds addWeeks addYears and any anyLast argMax argMin
        array arrayConcat arrayDistinct arrayElement arrayJoin arrayReverse arraySort arrayStringConcat avg ceil ceiling
        coalesce concat count countDistinct date_add date_diff date_sub date_trunc dateDiff divide empty endsWith equals
        exp extract extractAll floor formatDateTime fromUnixTimestamp fromUnixTimestamp64Micro fromUnixTimestamp64Milli
        fromUnixTimestamp64Nano greater greaterOrEquals greatest groupArray groupUniqArray has if ifNull ilike intDiv
        isFinite isInfinite isNaN isNotNull isNull isValidJSON JSONExtract JSONExtractArrayRaw JSONExtractBool
        JSONExtractFloat JSONExtractInt JSONExtractKeys JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas
        JSONLength JSONType least left length lengthUTF8 less lessOrEquals like lower lowerUTF8 ltrim map mapContains
        mapContainsKey mapKeys mapValues match max median min minus modulo multiIf multiply negate not notEmpty notEquals
        notILike notLike now now64 nullIf or parseDateTime64BestEffort parseDateTime64BestEffortOrNull
        parseDateTimeBestEffort parseDateTimeBestEffortOrNull plus position positionCaseInsensitive pow power quantile
        quantileExactInclusive quantileTDigest replace replaceAll replaceRegexpAll reverse right round rtrim splitByChar
        splitByString sqrt startsWith stddevPop stddevSamp substr substring substringUTF8 subtractDays subtractHours
        subtractMinutes subtractMonths subtractQuarters subtractSeconds subtractWeeks subtractYears sum toBool toDate
        toDateTime toDateTime64 today toDayOfMonth toDayOfWeek toDayOfYear toFloat32 toFloat32OrNull toFloat32OrZero
        toFloat64 toFloat64OrNull toFloat64OrZero toHour toInt16 toInt16OrNull toInt16OrZero toInt32 toInt32OrNull
        toInt32OrZero toInt64 toInt64OrNull toInt64OrZero toInt8 toInt8OrNull toInt8OrZero toIntervalDay toIntervalHour
        toIntervalMinute toIntervalMonth toIntervalQuarter toIntervalSecond toIntervalWeek toIntervalYear toISOWeek
        toMinute toMonday toMonth toQuarter toSecond toStartOfDay toStartOfFifteenMinutes toStartOfFiveMinute
        toStartOfFiveMinutes toStartOfHour toStartOfInterval toStartOfMinute toStartOfMonth toStartOfQuarter
        toStartOfSecond toStartOfTenMinutes toStartOfWeek toStartOfYear toString toUInt16 toUInt16OrNull toUInt16OrZero
        toUInt32 toUInt32OrNull toUInt32OrZero toUInt64 toUInt64OrNull toUInt64OrZero toUInt8 toUInt8OrNull toUInt8OrZero
        toUnixTimestamp toUnixTimestamp64Micro toUnixTimestamp64Milli toUnixTimestamp64Nano toUUID toYear toYYYYMM
        toYYYYMMDD trim trimBoth trimLeft trimRight trunc truncate uniq uniqCombined uniqExact uniqHLL12 upper upperUTF8
        varPop varSamp xor yesterday
    """.split()
}

# The aggregates among the functions; each may have the suffix If.
AGGREGATES: Final = _words("""
    any anylast argmax argmin avg count countdistinct grouparray groupuniqarray max median min quantile quantileexactinclusive
    quantiletdigest stddevpop stddevsamp sum uniq uniqcombined uniqexact uniqhll12 varpop varsamp
""")
