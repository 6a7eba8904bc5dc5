"""SQL templates with placeholders for trees, whose names and texts are quoted when they are printed."""

import pytest
from sqlglot import exp, parse_one

from cordwood.engines.clickhouse.target import ClickHouseQuoting
from cordwood.engines.duckdb.rules.building_blocks import decode_engine_name, encode_engine_name, is_valid_engine_name
from cordwood.engines.duckdb.target import DuckDBQuoting
from cordwood.errors import QueryUnsupported
from cordwood.sql.lowering import (
    block_filter_node,
    bytes_literal_node,
    fragment_node,
    identifier_node,
    join_fragments,
    merge_fragments,
    optional_predicate_node,
    quoted_literal_sql,
    string_literal_node,
)
from cordwood.sql.plan import BlockFilter, OptionalPredicate, print_segments
from cordwood.sql.tree_printer import PrintedTree, SqlQuoting, is_single_operand, print_tree

DUCKDB = DuckDBQuoting()
CLICKHOUSE = ClickHouseQuoting()
HOSTILE = [
    *(
        "{0}",
        "{1}",
        "@a",
        "'",
        '"',
        '"; select 1 --',
        "' || (select 1) || '",
        "\\",
        "\\' ",
        "`",
        "$name",
        "--",
        "/*",
        "*/",
    ),
    *("{_name}", "\n", "\t", "%s", "%(name)s", "{x:String}", "é", "\U0001f600", "select", " ", "''", '""', "\\0"),
]


def printed_text(tree: exp.Expr, quoting: SqlQuoting = DUCKDB) -> str:
    return print_tree(tree, lambda node: node.sql("duckdb"), quoting).text


def test_parts_are_parenthesized_where_an_operator_could_split_them() -> None:
    total = parse_one("a + b")
    assert printed_text(fragment_node("{0} * 2", total.copy())) == '("a" + "b") * 2'
    assert printed_text(fragment_node("f({0}, {0})", total)) == 'f("a" + "b", "a" + "b")'
    assert printed_text(fragment_node("{0} * 2", exp.column("a", "t"))) == '"t"."a" * 2'


def test_a_fragment_in_a_tree_is_printed_in_place() -> None:
    tree = exp.Add(this=fragment_node("{0}::BIGINT", exp.column("y")), expression=exp.Literal.number(1))
    assert printed_text(exp.select(tree)) == 'SELECT ("y"::BIGINT) + 1'


def test_braces_in_names_and_texts_are_not_holes() -> None:
    tree = fragment_node(
        "{0}.{1} = {2}", exp.column("x"), identifier_node("{0}"), string_literal_node("it's {0} @a {2}")
    )
    assert printed_text(tree) == """"x"."{0}" = 'it''s {0} @a {2}'"""


def test_a_tree_cannot_be_printed_twice() -> None:
    """Refuse to print a tree again, because printing consumes it: its parts become text."""
    tree = exp.select(exp.column("a"))
    assert printed_text(tree) == 'SELECT "a"'
    with pytest.raises(ValueError, match="printed before"):
        printed_text(tree)


def test_one_node_can_be_a_part_twice() -> None:
    negative = parse_one("-1")
    assert printed_text(fragment_node("f({0}, {1})", negative, negative)) == "f(-1, -1)"


def test_a_hole_without_a_part_is_an_error() -> None:
    with pytest.raises(ValueError, match="placeholder"):
        fragment_node(r"regexp_matches({0}, '\d{4}')", exp.column("x"))


@pytest.mark.parametrize("text", HOSTILE)
def test_names_and_texts_of_any_content_are_quoted(text: str) -> None:
    tree = exp.select(exp.alias_(fragment_node("f({0})", string_literal_node(text)), text, quoted=True))
    for quoting in (DUCKDB, CLICKHOUSE):
        assert (
            printed_text(tree.copy(), quoting) == f"SELECT f({quoting.quote_text(text)}) AS {quoting.quote_name(text)}"
        )


@pytest.mark.parametrize("text", HOSTILE)
def test_the_engine_delimits_quoted_names_and_texts_as_written(text: str) -> None:
    for quoting in (DUCKDB, CLICKHOUSE):
        for written in (quoting.quote_text(text), quoting.quote_name(text)):
            assert quoting.quoted_or_comment_pattern.fullmatch(written)


@pytest.mark.parametrize("text", ["a) OR (b", "x' ) OR ('", '"', "\\') OR (", "(((", "'"])
def test_parentheses_in_names_and_texts_are_ignored(text: str) -> None:
    for quoting in (DUCKDB, CLICKHOUSE):
        combined = fragment_node("{0} AND c", fragment_node("a = {0} OR b", string_literal_node(text)))
        assert printed_text(combined, quoting) == f"(a = {quoting.quote_text(text)} OR b) AND c"
        called = fragment_node(
            "{0} AND c", fragment_node("f({0}, {1})", string_literal_node(text), identifier_node(text))
        )
        assert printed_text(called, quoting) == f"f({quoting.quote_text(text)}, {quoting.quote_name(text)}) AND c"


def test_a_hole_inside_quotes_is_an_error() -> None:
    for template in ("f('{0}')", 'f("{0}")', "f(1 /* {0} */)"):
        with pytest.raises(ValueError, match="is quoted"):
            printed_text(fragment_node(template, string_literal_node("x")))


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "\ue0ff", "\ue0ff0", "\ue0ffe", "\ue0ffs", "\0\ue0ff", "a"])
def test_unsupported_names_have_distinct_identifiers(name: str) -> None:
    assert decode_engine_name(encode_engine_name(name)) == name
    assert is_valid_engine_name(name) == (encode_engine_name(name) == name)
    assert "\0" not in DUCKDB.encode_identifier(name)
    for quoting in (DUCKDB, CLICKHOUSE):
        assert quoting.encode_identifier(name) != ""
        assert printed_text(identifier_node(name, is_verbatim=True), quoting) == quoting.quote_name(name)
        assert printed_text(identifier_node(name), quoting) == quoting.quote_name(quoting.encode_identifier(name))


def test_names_of_clickhouses_subcolumns_are_escaped() -> None:
    names = ["null", "size0", "size12", "", "\ue0ffnull", "\ue0ff", "a", "Null", "size"]
    assert len({CLICKHOUSE.encode_identifier(name) for name in names}) == len(names)
    assert not {"null", "size0", "size12", ""} & {CLICKHOUSE.encode_identifier(name) for name in names}
    assert [name for name in names if CLICKHOUSE.encode_identifier(name) == name] == ["a", "Null", "size"]


def test_a_nul_character_does_not_end_a_text() -> None:
    assert printed_text(fragment_node("f({0})", string_literal_node("a\0b"))) == "f(('a' || chr(0) || 'b'))"
    assert printed_text(fragment_node("f({0})", string_literal_node("a\0b")), CLICKHOUSE) == r"f('a\0b')"


def test_bytes_are_printed_as_escapes() -> None:
    assert printed_text(fragment_node("{0}::BLOB", bytes_literal_node(b"'\0\xff"))) == r"'\x27\x00\xFF'::BLOB"


def test_an_unpaired_surrogate_is_refused() -> None:
    with pytest.raises(QueryUnsupported, match="not Unicode"):
        printed_text(fragment_node("{0}", string_literal_node("\ud800")))


@pytest.mark.parametrize("number", ["1; drop", "1 --", "1'", "x", "1)", ""])
def test_a_number_that_is_not_digits_is_an_error(number: str) -> None:
    with pytest.raises(ValueError, match="no number"):
        printed_text(exp.select(exp.Literal(this=number, is_string=False)))


@pytest.mark.parametrize("word", ["a b", "a'", "1", "a;", "\ud800"])
def test_slots_and_variables_must_be_plain_words(word: str) -> None:
    for node in (exp.Parameter(this=exp.Var(this=word)), exp.Var(this=word)):
        with pytest.raises(ValueError, match="no word"):
            printed_text(exp.select(node))


@pytest.mark.parametrize("text", ["{0}", "@a", "\\", '"', "\n", "é", "$x", "`", "#"])
def test_a_template_constant_has_no_special_characters(text: str) -> None:
    with pytest.raises(ValueError, match="no constant"):
        quoted_literal_sql(text)


SLOT = exp.Parameter(this=exp.Var(this="p"))


def test_optional_predicates_and_block_filters_are_separate_segments() -> None:
    marked_filter = BlockFilter("s", ("abcdef",))
    inner = optional_predicate_node(
        SLOT.copy(), fragment_node("f()"), fragment_node("{0} AND {1}", block_filter_node(marked_filter), SLOT.copy())
    )
    tree = exp.select(exp.column("a")).where(inner).where(string_literal_node("{1} OR $p"))
    segments = print_tree(tree, lambda node: node.sql("duckdb"), DUCKDB)
    predicate = OptionalPredicate("p", ("f()",), ("(", marked_filter, " AND $p)"))
    assert segments == PrintedTree(('SELECT "a" WHERE ', predicate, " AND '{1} OR $p'"), frozenset({"p"}))
    assert segments.text == "SELECT \"a\" WHERE (f() OR (true AND $p)) AND '{1} OR $p'"


def test_one_side_of_an_optional_predicate_is_printed_for_a_known_value() -> None:
    marked_filter = BlockFilter("s", ("abcdef",))
    segments = ("WHERE ", OptionalPredicate("p", ("a",), (marked_filter, " AND b")), " LIMIT 1")
    assert print_segments(segments) == "WHERE (a OR true AND b) LIMIT 1"
    assert print_segments(segments, {"p": None}, {marked_filter: [1, 2]}) == "WHERE (a) LIMIT 1"
    assert print_segments(segments, {"p": 1}, {marked_filter: [1, 2]}) == "WHERE (block IN (1, 2) AND b) LIMIT 1"
    assert print_segments(segments, {"p": 1}, {marked_filter: None}) == "WHERE (true AND b) LIMIT 1"


def test_the_slots_of_the_printed_text_are_returned() -> None:
    tree = exp.select(exp.Parameter(this=exp.Var(this="p")), string_literal_node("$q"))
    assert print_tree(tree, lambda node: node.sql("duckdb"), DUCKDB).slot_names == {"p"}


def test_merged_fragments_are_one_template() -> None:
    alias = merge_fragments(
        "{0} AS {1}", fragment_node("{0}.{1}", identifier_node("x"), identifier_node("{0}")), identifier_node("y")
    )
    assert (
        printed_text(join_fragments(", ", [alias, fragment_node("{0}", string_literal_node("{1}"))]))
        == """"x"."{0}" AS "y", '{1}'"""
    )


@pytest.mark.parametrize("text", ["a", "1.5", "'it''s (b'", '"a"."b c"', "f(x, (y))", "(a + b)", "[1, 2]", "f(x)[1]"])
def test_a_single_operand_is_closed(text: str) -> None:
    assert is_single_operand(text, DUCKDB.quoted_or_comment_pattern)


def test_a_backslash_escapes_a_quote_on_clickhouse_only() -> None:
    assert is_single_operand(r"f('\')", DUCKDB.quoted_or_comment_pattern)
    assert not is_single_operand(r"f('\')", CLICKHOUSE.quoted_or_comment_pattern)
    assert is_single_operand(r"f('\')')", CLICKHOUSE.quoted_or_comment_pattern)


@pytest.mark.parametrize(
    "text", ["a + b", "f(x) + g(y)", "(a) + (b)", "x::BIGINT", "CASE WHEN a THEN b END", "'a' || 'b'", "f('"]
)
def test_a_text_that_an_operator_could_split_is_open(text: str) -> None:
    assert not is_single_operand(text, DUCKDB.quoted_or_comment_pattern)
