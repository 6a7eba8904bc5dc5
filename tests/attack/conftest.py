"""While the attacks run, the check of statements has nothing to refuse: the compiler alone holds."""

from collections.abc import Iterator

import pytest

from tests.second_wall import silent


@pytest.fixture(autouse=True)
def second_wall_is_silent() -> Iterator[None]:
    with silent():
        yield
