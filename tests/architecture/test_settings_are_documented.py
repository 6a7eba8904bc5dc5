"""Every setting stands in the reference with its default and its sentence."""

from tests.architecture.settings_page import PAGE, page


def test_the_reference_is_what_the_settings_say() -> None:
    assert PAGE.read_text() == page(), "make docs"
