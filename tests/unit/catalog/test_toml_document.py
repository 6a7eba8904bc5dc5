"""Settings in TOML: positions of errors, and texts for which a careless parser needs much time or a deep stack."""

import pytest

from cordwood.catalog.alert_table import read_condition
from cordwood.catalog.toml_document import TomlDocument
from cordwood.errors import BadEndpointFile, SetupFault

LONG_TEXT_SIZE = 100_000


def fault_of(text: str) -> SetupFault:
    with pytest.raises(BadEndpointFile) as caught:
        parse_supported(text)
    return caught.value


def parse_supported(text: str) -> None:
    document = TomlDocument("", text, 1, BadEndpointFile).parse()
    document.check_setting_names(document.root_table, ("known", "list"))


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("known = 1\nother = 2", "other is not a setting here.", (2, 1)),
        ("known = 1\nlist = [1,", "not TOML", (2, 11)),
        ('known = "a\u2028b\x85c"\nother = 2', "other", (2, 1)),
        ('"" = 1', "is not a setting", (1, 1)),
        ("known = 1\nlist = " + "[" * LONG_TEXT_SIZE, "nested too deeply", (2, 24)),
        ("list = " + "{a = " * LONG_TEXT_SIZE, "nested too deeply", (1, 88)),
        ("known" + ".a" * LONG_TEXT_SIZE + " = 1", "nested too deeply", (1, 36)),
        ("known = 1\n\nlist = " + "9" * LONG_TEXT_SIZE, "too many digits", (3, 8)),
        ('known = """' + '\\"""' * LONG_TEXT_SIZE, "not TOML", None),
        ('known = """\n[' + " " * LONG_TEXT_SIZE + '"""\nother = 2', "other", (3, 1)),
        ('known = """\n[' + "a." * LONG_TEXT_SIZE + 'a]\n"""\nother = 2', "other", None),
        ('known = """\n[[ . ]]\n"""\nother = 2', "other", (4, 1)),
        ("\n".join(f'"{number}" = 1' for number in range(10_000)), "0 is not a setting here.", (1, 1)),
    ],
)
def test_a_text_is_refused_with_its_place(text: str, message: str, place: tuple[int, int] | None) -> None:
    fault = fault_of(text)
    assert message in fault.message
    assert fault.span is not None
    assert place in (None, (fault.span.line, fault.span.column))


def test_brackets_and_dots_in_texts_and_comments_do_not_count_as_nesting() -> None:
    written = "[{." * 100
    text = f'known = "{written}" # {written}\nlist = [\'{written}\', \'\'\'{written}\n\'\'\', """"\\"{written}"""]'
    assert TomlDocument("", text, 1, BadEndpointFile).parse().root_table["known"] == written


def test_long_numbers_in_conditions_are_refused() -> None:
    assert read_condition("n > " + "1" * LONG_TEXT_SIZE + "x") is None
    assert read_condition("n > 1.") is not None
    assert read_condition("n > .5e3") is not None
