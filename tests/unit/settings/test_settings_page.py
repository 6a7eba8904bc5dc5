"""The generated reference page of settings."""

from tests.unit.settings.settings_page import PAGE, page


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "make docs"
