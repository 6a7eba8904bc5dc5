"""Internals of sqlglot on which the compiler relies: tokens, positions, metadata and parse errors."""

import pytest
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

BIGQUERY = Dialect.get_or_raise("bigquery")


def tokens(text: str) -> list[Token]:
    return list(BIGQUERY.tokenize(text))


def test_a_token_has_its_text_position_and_comments() -> None:
    first, second = tokens("select /* c */ `a`")
    assert (first.text, first.token_type, first.line, first.start, first.end) == ("select", TokenType.SELECT, 1, 0, 5)
    assert (second.text, second.token_type, second.start, second.end) == ("a", TokenType.IDENTIFIER, 15, 17)
    assert first.comments == [" c "]


def test_the_text_of_a_token_can_be_changed_before_parsing() -> None:
    token_list = tokens("select a")
    token_list[1].text = "b"
    (tree,) = BIGQUERY.parser().parse(token_list, "select a")
    assert tree is not None
    assert tree.sql() == "SELECT b"


def test_nodes_have_a_position_in_their_metadata_which_can_be_removed() -> None:
    (tree,) = BIGQUERY.parser().parse(tokens("select abc"), "select abc")
    assert tree is not None
    column = tree.find(exp.Identifier)
    assert column is not None
    assert {"line", "col", "start", "end"} <= set(column.meta)
    assert column.meta_get("line") == 1
    column._meta = None
    assert column.meta_get("line") is None
    assert column.copy()._meta is None


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("select f(a where b)", "Expecting )"),
        ("select cast(a as foo)", "Expected TYPE after CAST"),
        ("select array<string(3)>[]", "Expecting >"),
    ],
)
def test_a_parse_error_has_a_description_and_a_position(text: str, description: str) -> None:
    with pytest.raises(ParseError) as caught:
        BIGQUERY.parser().parse(tokens(text), text)
    (first, *_) = caught.value.errors
    assert str(first["description"]).startswith(description)
    assert {"line", "col", "highlight"} <= first.keys()


def test_the_parser_lists_the_functions_it_parses_specially() -> None:
    parser = BIGQUERY.parser()
    assert {"ABS", "CONCAT"} <= set(parser.FUNCTIONS)
    assert {"CAST", "EXTRACT"} <= set(parser.FUNCTION_PARSERS)


def test_the_compiled_tokenizer_is_used() -> None:
    """Require the compiled tokenizer, because the tokenizer in Python takes ten times as long."""
    assert not str(getattr(__import__("sqlglot.tokenizer_core", fromlist=["x"]), "__file__", "")).endswith(".py")
