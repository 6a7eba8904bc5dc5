"""The reference page of settings is what the settings say."""

from tests.unit.settings.settings_page import PAGE, page


def test_the_page_is_as_it_would_be_made_now() -> None:
    assert PAGE.read_text() == page(), "make docs"
