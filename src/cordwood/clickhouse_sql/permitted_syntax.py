"""The allow-list of the dialect's syntax and functions. A node or function that is not on the list is refused."""

from collections.abc import Mapping
from typing import Final


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The permitted syntax: the class names of sqlglot's nodes, each with the node's permitted arguments.
PERMITTED_ARGUMENTS_BY_NODE: Final[Mapping[str, frozenset[str]]] = {
    "Add": _split_words("this expression"),
    "Alias": _split_words("this alias"),
    "And": _split_words("this expression"),
    "Array": _split_words("expressions"),
    "Between": _split_words("this low high negate"),
    "Boolean": _split_words("this"),
    "Bracket": _split_words("this expressions offset"),
    "CTE": _split_words("this alias scalar"),
    "Case": _split_words("this ifs default"),
    "Cast": _split_words("this to"),
    "CastToStrType": _split_words("this to"),
    "Column": _split_words("this table"),
    "DataType": _split_words("this expressions nullable nested"),
    "DataTypeParam": _split_words("this"),
    "Distinct": _split_words("expressions"),
    "Div": _split_words("this expression"),
    "EQ": _split_words("this expression"),
    "From": _split_words("this"),
    "GT": _split_words("this expression"),
    "GTE": _split_words("this expression"),
    "Group": _split_words("expressions all"),
    "Having": _split_words("this"),
    "Identifier": _split_words("this quoted"),
    "ILike": _split_words("this expression negate"),
    "In": _split_words("this expressions"),
    "Interval": _split_words("this unit"),
    "Is": _split_words("this expression"),
    "JSONPath": _split_words("expressions"),
    "JSONPathKey": _split_words("this"),
    "JSONPathRoot": frozenset(),
    "JSONPathSubscript": _split_words("this"),
    "LT": _split_words("this expression"),
    "LTE": _split_words("this expression"),
    "Like": _split_words("this expression negate"),
    "Limit": _split_words("expression"),
    "Literal": _split_words("this is_string"),
    "Mod": _split_words("this expression"),
    "Mul": _split_words("this expression"),
    "NEQ": _split_words("this expression"),
    "Neg": _split_words("this"),
    "Not": _split_words("this"),
    "Null": frozenset(),
    "Offset": _split_words("expression"),
    "Or": _split_words("this expression"),
    "Order": _split_words("expressions"),
    "Ordered": _split_words("this desc nulls_first"),
    "Paren": _split_words("this"),
    "Placeholder": _split_words("this kind"),
    "Select": _split_words("expressions from_ where group having order limit offset distinct with_"),
    "Sub": _split_words("this expression"),
    "Subquery": _split_words("this alias"),
    "Table": _split_words("this alias"),
    "TableAlias": _split_words("this"),
    "Tuple": _split_words("expressions"),
    "Union": _split_words("this expression distinct"),
    "Var": _split_words("this"),
    "Where": _split_words("this"),
    "With": _split_words("expressions"),
}

# The permitted functions: a mapping from the name in lower case to ClickHouse's spelling. Functions are looked up in
# lower case, because ClickHouse accepts some of them in any case. No two of these functions differ only by case.
PERMITTED_FUNCTIONS: Final[Mapping[str, str]] = {
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

# The permitted functions that are aggregates. Each of them may have the suffix If.
PERMITTED_AGGREGATES: Final = _split_words("""
    any anylast argmax argmin avg count countdistinct grouparray groupuniqarray max median min quantile quantileexactinclusive
    quantiletdigest stddevpop stddevsamp sum uniq uniqcombined uniqexact uniqhll12 varpop varsamp
""")
