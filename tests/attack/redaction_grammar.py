"""Templates of expressions over private values, at least one for every permitted function. This module has only data.

A placeholder names a type: `{S}` string, `{I}` integer, `{F}` float, `{B}` boolean, `{T}` timestamp, `{D}` date, `{E}`
datetime, `{M}` time, `{Y}` bytes, `{A}` array of strings, `{N}` array of integers, `{J}` JSON. Lower-case letters are
constants: `{s}` a string, often part of a private one, `{i}` an integer, `{p}` a regex, `{l}` a LIKE pattern.
"""

from typing import Final


def _split_lines(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.splitlines())))


SCALARS: Final = {
    "S": _split_lines("""
        upper({S})
        lower({S})
        initcap({S})
        reverse({S})
        substr({S}, {i}, {i})
        substring({S}, {i})
        left({S}, {i})
        right({S}, {i})
        lpad({S}, 40, '*')
        rpad({S}, 40, {s})
        ltrim({S}, 'h')
        rtrim({S}, '7')
        trim({S}, '1')
        replace({S}, {s}, '-')
        translate({S}, '.:@', '___')
        repeat({S}, 2)
        concat({S}, {S})
        {S} || {S}
        regexp_extract({S}, {p})
        regexp_substr({S}, {p})
        regexp_replace({S}, {p}, '-')
        soundex({S})
        normalize({S})
        normalize_and_casefold({S})
        coalesce({S}, {S})
        ifnull({S}, {s})
        nullif({S}, {s})
        if({B}, {S}, {S})
        case when {B} then {S} else {S} end
        case {S} when {s} then 'a' when {S} then 'b' end
        greatest({S}, {S})
        least({S}, {s})
        format('%s %t', {S}, {I})
        to_hex({Y})
        to_base64({Y})
        to_base32({Y})
        cast({I} as string)
        cast({F} as string)
        cast({T} as string)
        safe_cast({S} as string)
        cast({S} as string(30))
        string({T}, 'UTC')
        chr({I})
        array_to_string({A}, ',')
        array_first({A})
        array_last({A})
        {A}[safe_offset({i})]
        {A}[offset(0)]
        {A}[safe_ordinal({I})]
        {A}[ordinal(1)]
        code_points_to_string({N})
        safe_convert_bytes_to_string({Y})
        json_value({S}, '$.ip')
        json_extract_scalar({S}, '$.password')
        json_query({S}, '$.email')
        json_extract({S}, '$.ip')
        json_value({J}, '$.a')
        json_type({J})
        lax_string({J})
        to_json_string({J})
        to_json_string({S})
        to_json_string({A})
        to_json_string(struct({S} as a, {I} as b))
        net.host({S})
        net.reg_domain({S})
        net.public_suffix({S})
        net.ip_to_string(net.safe_ip_from_string({S}))
        format_timestamp('%F %H', {T})
        format_date('%F', {D})
        format_datetime('%F', {E})
        format_time('%H', {M})
        struct({S} as a, {S} as b).a
        (select max(z) from unnest({A}) z)
        (select string_agg(z, '-' order by z) from unnest({A}) z)
        error({S})
        safe.substr({S}, {I})
        safe.left({S}, {I})
    """),
    "I": _split_lines("""
        length({S})
        char_length({S})
        character_length({S})
        byte_length({S})
        octet_length({Y})
        strpos({S}, {s})
        instr({S}, {S})
        regexp_instr({S}, {p})
        ascii({S})
        unicode({S})
        edit_distance({S}, {S})
        farm_fingerprint({S})
        cast({S} as int64)
        safe_cast({S} as int64)
        cast({F} as int64)
        array_length({A})
        {N}[safe_offset({i})]
        abs({I})
        sign({I})
        mod({I}, 7)
        div({I}, {I})
        {I} + {I}
        {I} - {I}
        {I} * 3
        -{I}
        safe_add({I}, {I})
        safe_subtract({I}, {I})
        safe_multiply({I}, {I})
        safe_negate({I})
        {I} & 3
        {I} | 4
        {I} ^ 5
        ~{I}
        {I} << 1
        {I} >> 1
        bit_count({I})
        if({B}, {I}, {I})
        coalesce({I}, {I})
        nullif({I}, {I})
        greatest({I}, {I})
        least({I}, {I})
        range_bucket({I}, [10, 20, 30])
        extract(minute from {T})
        extract(year from {D})
        extract(hour from {T} at time zone 'UTC')
        timestamp_diff({T}, {T}, second)
        date_diff({D}, {D}, day)
        datetime_diff({E}, {E}, hour)
        time_diff({M}, {M}, second)
        unix_seconds({T})
        unix_millis({T})
        unix_micros({T})
        unix_date({D})
        lax_int64({J})
        int64(json_query({J}, '$.b'))
        net.ipv4_to_int64(net.safe_ip_from_string({S}))
        case when {B} then {I} end
        (select count(*) from unnest({A}) z where z like {l})
        (select count(distinct z) from unnest({A}) z)
        (select o from unnest({A}) z with offset o where z = {s} limit 1)
    """),
    "F": _split_lines("""
        cast({I} as float64)
        safe_cast({S} as float64)
        cast({S} as float64)
        cast({S} as numeric)
        safe_cast({S} as bignumeric)
        parse_numeric({S})
        parse_bignumeric({S})
        {I} / {I}
        safe_divide({I}, {I})
        ieee_divide({F}, {F})
        sqrt(abs({F}))
        cbrt({F})
        pow({F}, 2)
        power({F}, 2)
        exp({F} / 1000)
        ln(abs({F}) + 1)
        log(abs({F}) + 1)
        log10(abs({F}) + 1)
        sin({F})
        cos({F})
        tan({F})
        asin(sin({F}))
        acos(cos({F}))
        atan({F})
        atan2({F}, 2)
        sinh({F} / 1000)
        cosh({F} / 1000)
        tanh({F})
        asinh({F})
        acosh(abs({F}) + 1)
        atanh(tanh({F} / 1000))
        cot({F} + 1)
        coth({F} + 1)
        csc({F} + 1)
        csch({F} / 1000 + 1)
        sec({F})
        sech({F} / 1000)
        ceil({F})
        ceiling({F})
        floor({F})
        round({F}, 1)
        trunc({F})
        lax_float64({J})
        float64(json_query({J}, '$.b'))
        if({B}, {F}, {F})
    """),
    "B": _split_lines("""
        {S} = {s}
        {S} != {S}
        {S} <> {s}
        {S} < {S}
        {S} >= {s}
        {S} like {l}
        {S} not like {l}
        {S} like any ({l}, {l})
        {S} like all ({l}, {l})
        {S} in ({s}, {s}, {S})
        {S} not in ({s}, {s})
        {S} in unnest({A})
        {S} between {s} and {S}
        {S} is null
        {S} is not null
        {S} is distinct from {s}
        {S} is not distinct from {S}
        {I} > {I}
        {I} = {i}
        {I} between {i} and {I}
        {F} <= {F}
        {D} < {D}
        regexp_contains({S}, {p})
        starts_with({S}, {s})
        ends_with({S}, {s})
        contains_substr({S}, {s})
        {B} and {B}
        {B} or {B}
        not {B}
        if({B}, {B}, {B})
        coalesce({B}, false)
        ({B}) is true
        is_nan({F})
        is_inf({F})
        safe_cast({S} as bool)
        lax_bool({J})
        bool(json_query({J}, '$.c'))
        exists (select 1 from unnest({A}) z where z > {s})
        ({S}, {I}) in (({s}, {i}), ({S}, 2))
    """),
    "T": _split_lines("""
        timestamp_add({T}, interval {I} second)
        timestamp_sub({T}, interval length({S}) minute)
        timestamp_trunc({T}, hour)
        timestamp_bucket({T}, interval 1 hour)
        timestamp_seconds({I})
        timestamp_millis({I})
        timestamp_micros({I})
        timestamp({S})
        timestamp({D})
        safe_cast({S} as timestamp)
        parse_timestamp('%Y', {S})
        safe.parse_timestamp('%Y', {S})
        greatest({T}, {T})
        if({B}, {T}, {T})
        current_timestamp()
        {T} + interval 1 day
        {T} + interval '1:2' hour to minute
        {T} + make_interval(hour => {I})
    """),
    "D": _split_lines("""
        date({T})
        date_add(date '2026-01-01', interval {I} day)
        date_sub({D}, interval 1 week)
        date_trunc({D}, month)
        date_trunc({D}, week(monday))
        date_bucket({D}, interval 2 day)
        date_from_unix_date(mod({I}, 1000))
        last_day({D})
        parse_date('%Y', {S})
        safe.parse_date('%Y', {S})
        safe_cast({S} as date)
        cast({S} as date)
        current_date()
        if({B}, {D}, {D})
    """),
    "E": _split_lines("""
        datetime({T}, 'UTC')
        datetime_add({E}, interval {I} minute)
        datetime_sub({E}, interval 1 hour)
        datetime_trunc({E}, day)
        datetime_bucket({E}, interval 1 day)
        parse_datetime('%Y', {S})
        safe_cast({S} as datetime)
        current_datetime()
    """),
    "M": _split_lines("""
        time({T})
        time_add({M}, interval {I} second)
        time_sub({M}, interval 1 minute)
        time_trunc({M}, hour)
        parse_time('%H', {S})
        safe_cast({S} as time)
        current_time()
    """),
    "Y": _split_lines("""
        cast({S} as bytes)
        md5({S})
        sha1({S})
        sha256({S})
        sha512({S})
        from_hex(to_hex({Y}))
        from_base64(to_base64({Y}))
        from_base32(to_base32({Y}))
        code_points_to_bytes({N})
        net.safe_ip_from_string({S})
        net.ip_from_string({S})
        net.ip_trunc(net.safe_ip_from_string({S}), 8)
        net.ip_net_mask(4, {i})
        net.ipv4_from_int64({I})
        reverse({Y})
        b'\\x01'
    """),
    "A": _split_lines("""
        split({S}, '.')
        split({S}, ' ')
        [{S}, {S}]
        [{s}, {S}, {s}]
        regexp_extract_all({S}, {p})
        array_concat({A}, {A})
        array_reverse({A})
        array_slice({A}, 0, {i})
        array(select z from unnest({A}) z order by z)
        array(select distinct upper(z) from unnest({A}) z order by 1)
        array(select z from unnest({A}) z where z like {l})
        json_value_array({S}, '$')
        json_extract_string_array({S}, '$')
        json_query_array({S}, '$')
        json_extract_array({S}, '$')
        if({B}, {A}, {A})
    """),
    "N": _split_lines("""
        to_code_points({S})
        generate_array(1, mod({I}, 9))
        array(select length(z) from unnest({A}) z)
        [{I}, {I}]
        array(select extract(day from z) from unnest(generate_date_array(date '2026-01-01', {D})) z limit 3)
        array(select unix_seconds(z) from unnest(generate_timestamp_array(timestamp '2026-01-01', timestamp '2026-01-02', interval 6 hour)) z)
    """),
    "J": _split_lines("""
        to_json({S})
        to_json(struct({S} as a, {I} as b, {B} as c))
        parse_json(to_json_string(struct({S} as a, {I} as b)))
        safe.parse_json({S})
        json_object('a', {S}, 'b', {I})
        json_array({S}, {I})
        json_query({J}, '$.a')
        json_set({J}, '$.a', {S})
        json_remove({J}, '$.a')
        json_strip_nulls({J})
    """),
}

# Templates of aggregate functions, by result type.
AGGREGATES: Final = {
    "S": _split_lines("""
        min({S})
        max({S})
        any_value({S})
        any_value({S} having max {S})
        any_value({S} having min {I})
        string_agg({S}, ',' order by {S})
        string_agg(distinct {S}, ',' order by 1)
        max_by({S}, {S})
        min_by({S}, {I})
        array_to_string(array_agg({S} order by {S} desc limit 2), '|')
        (approx_top_count({S}, 2))[offset(0)].value
        (approx_top_sum({S}, {I}, 2))[offset(0)].value
        (approx_quantiles({S}, 2))[offset(1)]
    """),
    "I": _split_lines("""
        count(*)
        count({S})
        count(distinct {S})
        countif({B})
        sum({I})
        min({I})
        max(length({S}) having max {S})
        bit_and({I})
        bit_or({I})
        bit_xor({I})
        approx_count_distinct({S})
        array_length(array_agg(distinct {S} ignore nulls))
        array_length(array_concat_agg({A}))
        sum(distinct {I})
    """),
    "F": _split_lines("""
        avg({I})
        stddev({I})
        stddev_pop({I})
        stddev_samp({I})
        variance({I})
        var_pop({I})
        var_samp({I})
        corr({I}, {I})
        covar_pop({I}, {I})
        covar_samp({I}, {I})
    """),
    "B": _split_lines("""
        logical_and({B})
        logical_or({B})
        max({S}) = {s}
        count(*) > {i}
    """),
    "A": _split_lines("""
        array_agg({S} order by {S})
        array_agg(distinct {S} order by 1)
        array_agg({S} ignore nulls order by {I}, {S} limit 3)
        array_agg({S} order by (1))
    """),
}

# Templates of window functions; `{O}` is a window with ORDER BY, `{W}` a window without it.
WINDOWS: Final = {
    "S": _split_lines("""
        lag({S}) over ({O})
        lead({S}, 1, {s}) over ({O})
        first_value({S}) over ({O})
        first_value({S} respect nulls) over ({O})
        last_value({S}) over ({O} rows between unbounded preceding and unbounded following)
        nth_value({S}, 2) over ({O} rows between 1 preceding and 1 following)
        min({S}) over ({W})
        max({S}) over ({O} rows between 2 preceding and current row)
        percentile_disc({I}, 0.5) over (partition by {S})
    """),
    "I": _split_lines("""
        row_number() over ({O})
        rank() over ({O})
        dense_rank() over ({O})
        ntile(3) over ({O})
        count(*) over ({W})
        count(distinct {S}) over (partition by {S})
        sum({I}) over ({O} rows between unbounded preceding and current row)
        row_number() over (order by 1)
        row_number() over (order by (2), id)
        rank() over (order by -(-1))
    """),
    "F": _split_lines("""
        percent_rank() over ({O})
        cume_dist() over ({O})
        percentile_cont({I}, 0.5) over (partition by {S})
        avg({I}) over ({W})
    """),
}

# Permitted functions and parser nodes that generated queries do not contain, each with the reason.
FUNCTIONS_NOT_GENERATED: Final = {"GROUPING": "stands beside grouping sets, which the queries have"}
NODES_NOT_GENERATED: Final = {
    **dict.fromkeys(
        ("JSONPath", "JSONPathKey", "JSONPathRoot", "JSONPathSubscript"), "paths of other dialects' functions"
    ),
    **dict.fromkeys(("National", "UnicodeString", "Slice", "Xor", "ColumnDef"), "not written in BigQuery's queries"),
    "PivotAny": "PIVOT with ANY is not supported",
}

CONSTANTS_BY_PLACEHOLDER: Final = {
    "s": (
        "'203'", "'203.0.113.7'", "'2'", "'hit'", "'hit from 203.0.113.7 by first.person@example.org'", "'REDACTED'",
        "'first.person@example.org'", "'correct horse'", "'x'", "'@'", "'.'", "'nothing here'", "''", "'4111'", "'GET'", "@p",
    ),
    "l": ("'%203%'", "'2%'", "'%example.org%'", "'%ED'", "'_%'", "'%'", "'%hit%'", "'%4111%'", "'%.7'"),
    "i": ("0", "1", "2", "3", "12", "200", "4111111111111111"),
    "p": ("r'203'", "r'[0-9.]{7,}'", "r'([a-z]+)@'", "r'^h'", "r'[0-9]+'", "r'ED'", "r'horse$'", "@p"),
}  # fmt: skip

# Spellings of an ordinal of ORDER BY or GROUP BY, and expressions that look like one. `#` is the number.
ORDINAL_SPELLINGS: Final = (
    "#", "(#)", "((#))", "0#", "00#", "0x#", "0X0#", "(0x#)", "+#", "-(-#)", "- -#", "-#", "#.0", "#e0", "(# + 0)", "1 * #",
    "cast(# as int64)", "'#'", "true", "null", "(select #)", "if(true, #, 1)", "coalesce(#)", "~(-#-1)", "abs(-#)", "[#][offset(0)]",
    "struct(#).f", "numeric '#'", "greatest(#)", "mod(#, 9)", "b'#'", "date '2026-01-0#'", "@p",
)  # fmt: skip

LQL_QUERIES: Final = (
    "f:logs", "f:again", "f:logs 203.0.113.7", "f:logs hit", 'f:logs "nothing here"', 'f:logs ~"203\\.0"', "f:logs -203",
    "f:logs m.request.ip:203.0.113.7", "f:logs m.request.ip:~203", "f:logs m.request.ip:>198", "f:logs m.request.ip:<=2",
    "f:logs m.request.card:>5000000000000000", 'f:logs m.request.password:"correct horse"', "f:logs m.request.card:4111..4112",
    "f:logs m.request.texts:@>203.0.113.7", "f:logs m.request.texts:@>~203", "f:logs m.request.nothing:NULL", "f:logs who:203.0.113.7",
    "f:logs -whence:NULL", "f:logs who:~^2 OR whence:~^a", "f:logs m.level:info..error", "f:logs m.request.password:NULL",
    'f:logs m.request."10.9.9.9":seen', "f:logs -( m.request.ip:~203 m.request.status:200 )",
)  # fmt: skip
LQL_ENDINGS: Final = (
    "", "s:m.request.ip s:event_message", "s:*", "s:who@w order:who@asc", "order:event_message@desc limit:3", "order:m.request.ip@asc limit:2",
    "c:count(*) c:group_by(t::minute)", "c:count(*) c:group_by(m.request.ip)", "c:countd(who) c:group_by(t::second)",
    "c:max(m.request.card)", "c:avg(m.request.mixed) c:group_by(who)", "c:p95(m.request.status) c:group_by(m.request.method)", "c:min(who)",
)  # fmt: skip
