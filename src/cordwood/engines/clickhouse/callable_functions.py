"""Functions that the engine's rules may emit, by the names that ClickHouse's parser reports.

A statement with any other function is refused. None of these reads a file, a setting, a table or a dictionary by its
name, another server, or a query in a text. A rule that emits another function adds it here, in alphabetical order.
"""

from typing import Final

from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_JSON, REDACT_TEXT

_LISTED: Final = """
    ATAN2 CAST IPv4NumToString IPv4StringToNumOrNull IPv6NumToString IPv6StringToNumOrNull JSONExtract
    JSONExtractArrayRaw JSONExtractBool JSONExtractFloat JSONExtractInt JSONExtractKeys JSONExtractKeysAndValuesRaw
    JSONExtractRaw JSONExtractString JSONExtractUInt JSONHas JSONLength JSONType MD5 PERCENT_RANK SHA1 SHA256 SHA512
    abs accurateCast accurateCastOrNull acos acosh addDays addMicroseconds addMonths addSeconds and array arrayConcat
    arrayCount arrayDistinct arrayElement arrayElementOrNull arrayEnumerate arrayExists arrayFilter arrayFirstIndex
    arrayFlatten arrayFold arrayJoin arrayLastIndex arrayMap arrayReverse arrayReverseSort arraySlice arraySort
    arrayStringConcat arraySum arrayZip asin asinh assumeNotNull atan atanh base32Encode base64Decode base64Encode
    bitAnd bitCount bitNot bitOr bitShiftLeft bitShiftRight bitXor cbrt ceil char coalesce concat cos cosh
    countMatches countSubstrings cume_dist dateDiff dense_rank divide editDistance editDistanceUTF8 empty endsWith
    equals exists exp exp10 extract extractAll extractAllGroupsVertical extractGroups farmFingerprint64 first_value
    first_value_respect_nulls floor formatDateTime fromUnixTimestamp64Micro generateUUIDv4 greater greaterOrEquals
    greatest grouping has hex if ifNull ignore in indexOf intDiv isDistinctFrom isFinite isInfinite isNaN
    isNotDistinctFrom isNotNull isNull isValidJSON isValidUTF8 lag lambda last_value last_value_respect_nulls lead
    least left leftPad leftPadUTF8 leftUTF8 length lengthUTF8 less lessOrEquals like ln log10 lower lowerUTF8
    makeDate32 match minus modulo multiIf multiply negate normalizeUTF8NFC normalizeUTF8NFD normalizeUTF8NFKC
    normalizeUTF8NFKD not notEquals notIn now64 nth_value ntile nullIf or parseDateTime64BestEffort
    parseDateTime64BestEffortOrNull plus position positionUTF8 positiveModulo power printf randCanonical range rank
    reinterpretAsInt64 reinterpretAsUInt32 reinterpretAsUInt64 reinterpretAsUInt8 repeat replaceAll replaceOne
    replaceRegexpAll replaceRegexpOne reverse reverseUTF8 right rightPad rightPadUTF8 rightUTF8 round roundBankers
    row_number sign sin sinh splitByString sqrt startsWith substring substringUTF8 tan tanh throwIf timeZoneOffset
    toDate32 toDateTime64 toDayOfMonth toDayOfWeek toDayOfYear toDecimal128OrNull toDecimal256OrNull toDecimal64
    toDecimalString toFixedString toFloat64 toFloat64OrNull toFloat64OrZero toHour toISOWeek toISOYear toInt128
    toInt16 toInt256 toInt64 toInt64OrNull toInt64OrZero toJSONString toLastDayOfMonth toMinute toMonday toMonth
    toNullable toQuarter toSecond toStartOfISOYear toStartOfMonth toStartOfQuarter toStartOfYear toString toTimeZone
    toUInt16 toUInt32 toUInt64 toUInt8 toUnixTimestamp64Micro toValidUTF8 toYear transform translate translateUTF8
    trimBoth trimLeft trimRight trunc tryBase32Decode tryBase64Decode tuple tupleElement tupleNegate unhex upper
    upperUTF8
"""

# Aggregates, with the combinator suffixes that the rules use.
_AGGREGATES: Final = """
    any anyOrNull argMax argMaxOrNull argMin argMinOrNull avgOrNull avgOrNullDistinct corrStableOrNullIf count
    countIf covarPopStableOrNullIf covarSampStableOrNullIf groupArray groupArrayIf groupBitAndOrNull
    groupBitAndOrNullDistinct groupBitOrOrNull groupBitOrOrNullDistinct groupBitXorOrNull groupBitXorOrNullDistinct
    max maxIf maxOrNull maxOrNullIf min minIf minOrNull minOrNullIf quantileExactInclusiveOrNull quantileTDigestOrNull
    stddevPopStableOrNull stddevPopStableOrNullDistinct stddevSampStableOrNull stddevSampStableOrNullDistinct sumMap
    sumOrNull sumOrNullDistinct uniqExact uniqExactIf varPopStableOrNull varPopStableOrNullDistinct
    varSampStableOrNull varSampStableOrNullDistinct
"""

# The functions of redaction, which the statement itself defines.
_REDACTION_FUNCTIONS: Final = frozenset(
    f"{name}_{mode}" for name in (REDACT_TEXT, REDACT_JSON, REDACT_EVENT, OPTIMISTIC_TEXT) for mode in RedactMode
)

FUNCTIONS: Final = frozenset(_LISTED.split()) | frozenset(_AGGREGATES.split()) | _REDACTION_FUNCTIONS
