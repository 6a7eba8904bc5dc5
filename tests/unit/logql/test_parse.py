"""Keywords of LogQL are case-insensitive, and labels may have the names of keywords."""

import pytest

from cordwood.errors import QueryUnsupported
from cordwood.logql.parse import parse_log_query, parse_logql


@pytest.mark.parametrize(
    ("written", "lower"),
    [
        ("SUM BY (Level) (Count_Over_Time({Job=`A`}[5m]))", "sum by (Level) (count_over_time({Job=`A`}[5m]))"),
        ("{} | JSON | n=1 AND Path=`/pay` OR n=2", "{} | json | n=1 and Path=`/pay` or n=2"),
        ("{} |= `A` OR `B` | Logfmt Took=`T`", "{} |= `A` or `B` | logfmt Took=`T`"),
        ("{} | Line_Format `{{.X}}` | DROP X, Y | Keep Z", "{} | line_format `{{.X}}` | drop X, Y | keep Z"),
        (
            "Quantile_Over_Time(0.5, {} | UNWRAP Duration(T) [5m] OFFSET 1m) WITHOUT (H)",
            "quantile_over_time(0.5, {} | unwrap duration(T) [5m] offset 1m) without (H)",
        ),
        ("TopK(2, Rate({}[5m])) > BOOL 5", "topk(2, rate({}[5m])) > bool 5"),
        ("Sort_Desc(sum(rate({}[5m]))) Or VECTOR(0)", "sort_desc(sum(rate({}[5m]))) or vector(0)"),
    ],
)
def test_keywords_are_case_insensitive(written: str, lower: str) -> None:
    assert parse_logql(written) == parse_logql(lower)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("Label_Replace(rate({}[5m]), `a`, `b`, `c`, `d`)", "Label_Replace is not supported"),
        ("{} | RegExp `x`", "The stage RegExp is not supported"),
        ("{} | addr = IP(`10.0.0.0/8`)", "IP addresses"),
        ("rate({}[5m]) UNLESS rate({}[5m])", "UNLESS between two vectors"),
        ("rate({}[5m]) / ON (x) rate({}[5m])", "ON is not supported"),
    ],
)
def test_unsupported_keywords_are_recognized_in_any_case(query: str, message: str) -> None:
    with pytest.raises(QueryUnsupported, match=message):
        parse_logql(query)


def test_labels_may_have_the_names_of_keywords_and_keep_their_case() -> None:
    query = parse_log_query("{By=`a`, or=`b`} | JSON=`c` and And=`d` AND or=1 AND=2 or or=3 | drop Drop, KEEP")
    assert [matcher.label for matcher in query.matchers] == ["By", "or"]
    assert str(query.stages).count("MatchConjunction") == 3
    assert str(query.stages).count("MatchDisjunction") == 1
    for label in ("'JSON'", "'And'", "'or'", "'AND'", "'Drop'", "'KEEP'"):
        assert label in str(query.stages)
