"""The generated reference page of settings is up to date."""

from tests.unit.settings.settings_page import PAGE, reference_page


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == reference_page(), "make docs"
