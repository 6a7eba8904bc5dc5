"""Functions and types that the engine's rules may emit, by the names that DuckDB's parser reports.

A statement with any other function is refused. No listed function reads a file, a setting, the catalog, a table by its
name, or a query in a text. A rule that emits another function adds it here, in alphabetical order.
"""

from typing import Final

from cordwood.model.redaction import RedactMode
from cordwood.sql.redaction.masking import OPTIMISTIC_TEXT, REDACT_EVENT, REDACT_JSON, REDACT_TEXT

_LISTED: Final = """
    % & * + - ->> / // << >> | || ~ ~~
    abs acos acosh any_value arg_max arg_max_null arg_min arg_min_null array_agg array_to_string asin asinh atan atan2 atanh avg base64 bin bit_and
    bit_count bit_or bit_xor bool_and bool_or ceil chr concat contains corr cos cosh count count_star covar_pop covar_samp
    cume_dist date_diff date_part date_trunc day dayofweek dayofyear decode dense_rank encode epoch_us error exp
    first_value flatten floor from_base64 generate_series greatest hex histogram hour instr isfinite isinf isnan isodow
    isoyear json json_array json_array_length json_extract json_extract_string json_keys json_object json_pretty json_remove
    json_replace json_set json_strip_nulls json_type json_valid lag last_value lead least left len length levenshtein
    like_escape list_concat list_contains list_count list_distinct list_extract list_filter list_position list_reduce
    list_reverse list_slice list_sort list_sum list_transform list_value ln log10 lower lpad ltrim make_date make_time
    make_timestamp make_timestamptz map_entries max md5 microsecond millisecond min minute month nfc_normalize now
    nth_value ntile nullif octet_length ord percent_rank power printf quantile_cont quantile_disc quarter random range
    rank regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace regr_count repeat replace
    reverse right round round_even row row_number rpad rtrim second sha1 sha256 sign sin sinh split_part sqrt starts_with
    stddev_pop stddev_samp strftime string_agg string_split strlen strpos struct_extract struct_extract_at struct_pack
    substring suffix sum tan tanh time_bucket timezone to_base64 to_days to_hours to_json to_microseconds
    to_milliseconds to_minutes to_months to_quarters to_seconds to_weeks to_years translate trim trunc unbin unhex unnest
    upper var_pop var_samp variant_typeof weekofyear xor year
"""

# The macros of redaction, which the engine creates itself.
_REDACTION_MACROS: Final = frozenset(
    f"{name}_{mode}" for name in (REDACT_TEXT, REDACT_JSON, REDACT_EVENT, OPTIMISTIC_TEXT) for mode in RedactMode
)

FUNCTIONS: Final = frozenset(_LISTED.split()) | _REDACTION_MACROS
TABLE_FUNCTIONS: Final = frozenset({"unnest"})

TYPES: Final = frozenset(
    """
    BIGINT BIT BLOB BOOLEAN DATE DECIMAL DOUBLE HUGEINT INTEGER INTERVAL JSON list MAP STRUCT TIME TIMESTAMP TIMESTAMPTZ
    UBIGINT UHUGEINT VARCHAR VARIANT
    """.split()
)
