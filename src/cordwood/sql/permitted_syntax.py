"""The allow-list of syntax and functions, as data. A node or function that is not listed is refused."""

from typing import Final


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Syntax other than functions, as class names of sqlglot's nodes.
PERMITTED_NODES: Final = _split_words("""
    Add Alias All And Any AtTimeZone Between BitwiseAnd BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift
    BitwiseXor Boolean Bracket ByteString CTE Case Cast Column ColumnDef Cube DPipe DataType DataTypeParam
    Distinct Div Dot EQ Except Exists From GT GTE Group GroupingSets Having HavingMax HexString
    Identifier If IgnoreNulls In IntDiv Intersect Interval IntervalSpan Is JSONKeyValue JSONPath JSONPathKey
    JSONPathRoot JSONPathSubscript Join LT LTE Like Limit Literal Mod Mul NEQ National Neg NetFunc Not Null
    NullSafeEQ NullSafeNEQ Offset Or Order Ordered Parameter Paren Pivot PivotAlias PivotAny PropertyEQ Qualify
    RawString RespectNulls Rollup SafeFunc Select Slice Star Struct Sub Subquery Table TableAlias TryCast Tuple
    UnicodeString Union Unnest Var WeekStart Where Window WindowSpec With Xor
""")

# The permitted arguments (clauses) of some nodes. Other arguments are refused, because sqlglot also parses clauses of
# other dialects into these nodes.
PERMITTED_ARGUMENTS: Final = {
    "Between": _split_words("this low high"),
    "CTE": _split_words("this alias"),
    "Distinct": _split_words("expressions on"),
    "Except": _split_words("this expression distinct by_name with_ order limit offset side kind on"),
    "Group": _split_words("expressions all"),
    "In": _split_words("this query unnest expressions"),
    "Intersect": _split_words("this expression distinct by_name with_ order limit offset side kind on"),
    "Join": _split_words("this kind side on using method"),
    "Limit": _split_words("this expression"),
    "Ordered": _split_words("this desc nulls_first"),
    "Select": _split_words(
        "expressions from_ with_ group kind joins where order distinct qualify limit offset windows having into"
    ),
    "Star": _split_words("except_ replace"),
    "Subquery": _split_words("this alias pivots with_ joins order limit offset"),
    "Unnest": _split_words("expressions alias offset explode_array joins"),
    "Union": _split_words("this expression distinct by_name with_ order limit offset side kind on"),
    "WindowSpec": _split_words("kind start start_side end end_side"),
    "With": _split_words("expressions recursive"),
}

# Node classes of functions for which sqlglot does not keep the name that the author wrote. All names that it parses
# into these classes are therefore permitted.
FUNCTIONS_WITHOUT_WRITTEN_NAME: Final = _split_words("""
    And ArgMax ArgMin Array Case Cast Ceil Coalesce Concat CurrentDate CurrentDatetime CurrentTime CurrentTimestamp
    Exists Extract Floor GroupConcat If JSONArray JSONObject Mod NetFunc Or ParseJSON Pivot SafeFunc StrPosition
    StrToDate StrToTime Struct Substring TimestampFromParts Trim TryCast TsOrDsToDate TsOrDsToDatetime TsOrDsToTime
    TsOrDsToTimestamp Unnest WeekStart Xor
""")

# The supported functions of BigQuery: their names as queries write them, with the namespace.
PERMITTED_FUNCTIONS: Final = _split_words("""
    ABS ACOS ACOSH ANY_VALUE APPROX_COUNT_DISTINCT APPROX_QUANTILES APPROX_TOP_COUNT APPROX_TOP_SUM ARRAY
    ARRAY_AGG ARRAY_CONCAT ARRAY_CONCAT_AGG ARRAY_FIRST ARRAY_LAST ARRAY_LENGTH ARRAY_REVERSE ARRAY_SLICE
    ARRAY_TO_STRING ASCII ASIN ASINH ATAN ATAN2 ATANH AVG BIT_AND BIT_COUNT BIT_OR BIT_XOR BOOL BYTE_LENGTH CAST
    CBRT CEIL CEILING CHARACTER_LENGTH CHAR_LENGTH CHR COALESCE CODE_POINTS_TO_BYTES CODE_POINTS_TO_STRING
    CONCAT CONTAINS_SUBSTR CORR COS COSH COT COTH COUNT COUNTIF COVAR_POP COVAR_SAMP CSC CSCH CUME_DIST
    CURRENT_DATE CURRENT_DATETIME CURRENT_TIME CURRENT_TIMESTAMP DATE DATETIME DATETIME_ADD DATETIME_BUCKET
    DATETIME_DIFF DATETIME_SUB DATETIME_TRUNC DATE_ADD DATE_BUCKET DATE_DIFF DATE_FROM_UNIX_DATE DATE_SUB
    DATE_TRUNC DENSE_RANK DIV EDIT_DISTANCE ENDS_WITH ERROR EXP EXTRACT FARM_FINGERPRINT FIRST_VALUE FLOAT64
    FLOOR FORMAT FORMAT_DATE FORMAT_DATETIME FORMAT_TIME FORMAT_TIMESTAMP FROM_BASE32 FROM_BASE64 FROM_HEX
    GENERATE_ARRAY GENERATE_DATE_ARRAY GENERATE_TIMESTAMP_ARRAY GREATEST GROUPING IEEE_DIVIDE IF IFNULL INITCAP
    INSTR INT64 IS_INF IS_NAN JSON_ARRAY JSON_EXTRACT JSON_EXTRACT_ARRAY JSON_EXTRACT_SCALAR
    JSON_EXTRACT_STRING_ARRAY JSON_OBJECT JSON_QUERY JSON_QUERY_ARRAY JSON_REMOVE JSON_SET JSON_STRIP_NULLS
    JSON_TYPE JSON_VALUE JSON_VALUE_ARRAY LAG LAST_DAY LAST_VALUE LAX_BOOL LAX_FLOAT64 LAX_INT64 LAX_STRING LEAD
    LEAST LEFT LENGTH LN LOG LOG10 LOGICAL_AND LOGICAL_OR LOWER LPAD LTRIM MAKE_INTERVAL MAX MAX_BY MD5 MIN
    MIN_BY MOD NET.HOST NET.IPV4_FROM_INT64 NET.IPV4_TO_INT64 NET.IP_FROM_STRING NET.IP_NET_MASK
    NET.IP_TO_STRING NET.IP_TRUNC NET.PUBLIC_SUFFIX NET.REG_DOMAIN NET.SAFE_IP_FROM_STRING NORMALIZE
    NORMALIZE_AND_CASEFOLD NTH_VALUE NTILE NULLIF OCTET_LENGTH OFFSET ORDINAL PARSE_BIGNUMERIC PARSE_DATE
    PARSE_DATETIME PARSE_JSON PARSE_NUMERIC PARSE_TIME PARSE_TIMESTAMP PERCENTILE_CONT PERCENTILE_DISC
    PERCENT_RANK POW POWER RANGE_BUCKET RANK REGEXP_CONTAINS REGEXP_EXTRACT REGEXP_EXTRACT_ALL REGEXP_INSTR
    REGEXP_REPLACE REGEXP_SUBSTR REPEAT REPLACE REVERSE RIGHT ROUND ROW_NUMBER RPAD RTRIM SAFE_ADD SAFE_CAST
    SAFE_CONVERT_BYTES_TO_STRING SAFE_DIVIDE SAFE_MULTIPLY SAFE_NEGATE SAFE_OFFSET SAFE_ORDINAL SAFE_SUBTRACT
    SEC SECH SHA1 SHA256 SHA512 SIGN SIN SINH SOUNDEX SPLIT SQRT STARTS_WITH STDDEV STDDEV_POP STDDEV_SAMP
    STRING STRING_AGG STRPOS STRUCT SUBSTR SUBSTRING SUM TAN TANH TIME TIMESTAMP TIMESTAMP_ADD TIMESTAMP_BUCKET
    TIMESTAMP_DIFF TIMESTAMP_MICROS TIMESTAMP_MILLIS TIMESTAMP_SECONDS TIMESTAMP_SUB TIMESTAMP_TRUNC TIME_ADD
    TIME_DIFF TIME_SUB TIME_TRUNC TO_BASE32 TO_BASE64 TO_CODE_POINTS TO_HEX TO_JSON TO_JSON_STRING TRANSLATE
    TRIM TRUNC UNICODE UNIX_DATE UNIX_MICROS UNIX_MILLIS UNIX_SECONDS UNNEST UPPER VARIANCE VAR_POP VAR_SAMP
    WEEK
""")

# BigQuery functions that are not supported. The error for such a function differs from that for an unknown name.
UNSUPPORTED_FUNCTIONS: Final = _split_words("""
    AEAD.DECRYPT_BYTES AEAD.DECRYPT_STRING AEAD.ENCRYPT APPENDS APPROX_TOP_K ARRAY_FILTER ARRAY_INCLUDES
    ARRAY_INCLUDES_ALL ARRAY_INCLUDES_ANY ARRAY_IS_DISTINCT ARRAY_MAX ARRAY_MIN ARRAY_SUM ARRAY_TRANSFORM BAG
    BOOL_ARRAY CHANGES COLLATE COSINE_DISTANCE D3A_COUNT DETERMINISTIC_DECRYPT_BYTES
    DETERMINISTIC_DECRYPT_STRING DETERMINISTIC_ENCRYPT EUCLIDEAN_DISTANCE FLOAT32 FLOAT64_ARRAY GAP_FILL
    GENERATE_RANGE_ARRAY GENERATE_UUID HLL_COUNT.EXTRACT HLL_COUNT.INIT HLL_COUNT.MERGE HLL_COUNT.MERGE_PARTIAL
    INT64_ARRAY JSON_ARRAY_APPEND JSON_ARRAY_INSERT JSON_CONTAINS JSON_FLATTEN JSON_KEYS JUSTIFY_DAYS
    JUSTIFY_HOURS JUSTIFY_INTERVAL KEYS.NEW_KEYSET KLL_QUANTILES.EXTRACT_INT64 KLL_QUANTILES.INIT_INT64
    LAX_BOOL_ARRAY LAX_FLOAT64_ARRAY LAX_INT64_ARRAY LAX_STRING_ARRAY NET.IP_IN_NET NET.MAKE_NET NULLIFZERO RAND
    RANGE RANGE_CONTAINS RANGE_END RANGE_INTERSECT RANGE_OVERLAPS RANGE_SESSIONIZE RANGE_START SEARCH
    SESSION_USER SPLIT_SUBSTR STRING_ARRAY ST_ASGEOJSON ST_ASTEXT ST_CONTAINS ST_DISTANCE ST_DWITHIN
    ST_GEOGFROMTEXT ST_GEOGPOINT ST_INTERSECTS ST_WITHIN TEXT_ANALYZE TYPEOF VECTOR_SEARCH WITH ZEROIFNULL
""")
