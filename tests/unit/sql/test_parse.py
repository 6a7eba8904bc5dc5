"""The parser: positions of syntax errors, single statements, and limits on its work."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from cordwood.errors import BadQuerySyntax, QueryFault, QueryRefused
from cordwood.sql.parse import MAX_QUERY_CHARACTERS, parse_sql


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("select a b c from t", "1:12"),
        ("select\n  from where", "2:8"),
        ("select 1,\n\n   ) from t", "3:4"),
        ("selec 1", "1:1"),
        ("\n  fetch x", "2:3"),
        ("select 'abc", "1:12"),
        ("", "1:1"),
        ("select 1 from t where", "1:17"),
        ("with a as (select 1", "1:19"),
        ("select '\ud800'", "1:9"),
    ],
)
def test_a_syntax_error_has_its_position(text: str, place: str) -> None:
    with pytest.raises(BadQuerySyntax) as raised:
        parse_sql(text)
    assert str(raised.value.span) == place


def test_a_syntax_error_names_the_unexpected_word() -> None:
    with pytest.raises(BadQuerySyntax, match='near "c"'):
        parse_sql("select a b c from t")


@pytest.mark.parametrize(
    "text", ["select 1;", "select 1 ; ; ", "-- a\nselect 1 -- b", "/* a */ select 1 # b\n", "(select 1)", "select 1,"]
)
def test_comments_semicolons_parentheses_and_trailing_commas_are_accepted(text: str) -> None:
    parse_sql(text)


@pytest.mark.parametrize(("text", "place"), [("select 1; select 2", "1:11"), ("select 1;\ndrop table x", "2:1")])
def test_a_second_statement_is_refused(text: str, place: str) -> None:
    with pytest.raises(QueryRefused, match="one statement") as raised:
        parse_sql(text)
    assert str(raised.value.span) == place


@pytest.mark.parametrize("word", ["drop", "ATTACH", "Copy", "explain", "pragma", "set", "values"])
def test_other_statements_are_refused_by_their_first_word(word: str) -> None:
    with pytest.raises(QueryRefused, match=f"{word.upper()} is refused"):
        parse_sql(f"{word} x")


def literal_values(text: str) -> list[str]:
    return [literal.this for literal in parse_sql(text).tree.find_all(exp.Literal)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 'it''s'", ["it's"]),
        ("select 'it'''", ["it'"]),
        ("select '''it'", ["'it"]),
        ("select ''''", ["'"]),
        ('select "say ""a"""', ['say "a"']),
        ("select 'a''b''c', 'd'", ["a'b'c", "d"]),
        ("select '''a'''", ["a"]),
        ("select '''a' or b = '''b' -- don't\n", ["'a", "'b"]),
        ("select '''a', '\\''", ["'a", "'"]),
        ("select 'a' 'b'", ["a", "b"]),
        # The tokenizer reads the beginning of this literal as a triple-quoted text, which is not a prefix of the
        # literal's text.
        ("select '''br''''x'", ["'br''x"]),
    ],
)
def test_a_doubled_quote_inside_a_literal_is_one_quote(text: str, expected: list[str]) -> None:
    assert literal_values(text) == expected


@pytest.mark.parametrize("text", ["select 'a''", "select b'a''b'", "select 'a'\"b\"", "select 'a", "select '''a"])
def test_adjacent_and_unterminated_literals_are_refused(text: str) -> None:
    with pytest.raises(BadQuerySyntax):
        parse_sql(text)


# Texts for literals. A literal that begins with three quotes is triple-quoted, so the texts begin with no quote.
QUOTABLE_TEXTS = st.text(alphabet="'ab\"`-#/*r ", max_size=8).filter(lambda text: not text.startswith("'"))


@given(st.lists(QUOTABLE_TEXTS, min_size=1, max_size=3))
def test_literals_with_doubled_quotes_are_parsed(texts: list[str]) -> None:
    quoted = [text.replace("'", "''") for text in texts]
    assert literal_values("select " + ", ".join(f"'{text}'" for text in quoted)) == texts


@given(QUOTABLE_TEXTS.filter(lambda text: not text.endswith("'")))
def test_a_single_literal_that_begins_with_a_doubled_quote_is_parsed(text: str) -> None:
    quoted = f"'{text}".replace("'", "''")
    assert literal_values(f"select '{quoted}' as x") == [f"'{text}"]


def test_texts_of_many_quotes_are_parsed_in_linear_time() -> None:
    def seconds(count: int) -> float:
        began = time.process_time()
        for text in ("'" + "\\'" * count, "'a'" * count + "'", "/*" * count, "'" * (2 * count + 1)):
            with pytest.raises(QueryFault):
                parse_sql(f"select {text}")
        return time.process_time() - began

    short_seconds, long_seconds = seconds(6_000), seconds(60_000)

    assert long_seconds < 40 * (short_seconds + 0.01)


def test_a_long_text_is_refused_without_parsing() -> None:
    with pytest.raises(QueryRefused, match="longer"):
        parse_sql("select '" + "x" * MAX_QUERY_CHARACTERS + "'")


def test_a_wide_query_is_accepted() -> None:
    parse_sql("select " + ", ".join(f"a{number}" for number in range(2000)))
    parse_sql("select 1 from t where id in (" + ", ".join(f"'{number}'" for number in range(5000)) + ")")
    parse_sql("select 1 from t where " + " or ".join(f"a = {number}" for number in range(250)))


def test_deep_nesting_with_backtracking_is_refused_before_parsing() -> None:
    with pytest.raises(QueryRefused, match="nested too deeply"):
        parse_sql("select " + "safe.abs(" * 25 + "1" + ")" * 25)


def test_modest_nesting_is_accepted() -> None:
    parse_sql("select " + "struct(" * 8 + "1" + ")" * 8)
    parse_sql("select " + "(" * 60 + "1" + ")" * 60)


def identifier_names(text: str) -> list[str]:
    return sorted(identifier.name for identifier in parse_sql(text).tree.find_all(exp.Identifier))


@pytest.mark.parametrize(
    "name", ["a.b", "a..b", ".", "a.b.c.d.e", "\uf8ff.x", "dotted_0.x", "a.dotted_0", "Dotted.X", "a b.c*"]
)
def test_a_backquoted_name_with_dots_is_one_identifier(name: str) -> None:
    expected = sorted([name, "x.y", f"z.{name}", name])
    assert identifier_names(f"select `{name}`.`x.y` as `z.{name}` from `{name}`") == expected


@given(
    st.lists(
        st.lists(st.sampled_from(["dotted_", "_", "0", "1", ".", "\uf8ff", "a"]), min_size=1, max_size=8).map("".join),
        min_size=1,
        max_size=5,
    )
)
def test_names_like_the_replacements_of_dotted_names_stay_as_they_are(names: list[str]) -> None:
    columns = ", ".join(f"`{name}`" for name in names)
    assert identifier_names(f"select {columns}, '\uf8ff dotted_0' from t") == sorted([*names, "t"])
