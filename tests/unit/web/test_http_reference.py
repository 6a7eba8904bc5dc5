"""The HTTP reference names every address, format and header."""

from pathlib import Path

import pytest

from cordwood.serve.query_request import AnswerFormat
from cordwood.web.asgi import CORS_EXPOSED_HEADERS
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from cordwood.web.routes import BODY_FORMATS_BY_PATH_SUFFIX, ROUTES_BY_PATH

REFERENCE_TEXT = (Path(__file__).parents[3] / "docs" / "reference" / "http.md").read_text()


@pytest.mark.parametrize("address", [address.decode() for address in ROUTES_BY_PATH])
def test_every_address_is_documented(address: str) -> None:
    suffixes = [suffix.decode() for suffix in BODY_FORMATS_BY_PATH_SUFFIX if suffix]
    suffix_of_address = next((suffix for suffix in suffixes if address.endswith(suffix)), None)
    assert (
        f"`{address}`" in REFERENCE_TEXT or f"`…{suffix_of_address}`" in REFERENCE_TEXT or suffix_of_address == "/json"
    )


@pytest.mark.parametrize("form", ANSWER_FORMATS_BY_NAME.values(), ids=ANSWER_FORMATS_BY_NAME.keys())
def test_every_format_is_documented(form: AnswerFormat) -> None:
    assert f"| `{form.name}` | `{form.media_type.partition(';')[0]}` |" in REFERENCE_TEXT


@pytest.mark.parametrize("header", CORS_EXPOSED_HEADERS.decode().split(", "))
def test_every_exposed_header_is_documented(header: str) -> None:
    assert f"`{header}`" in REFERENCE_TEXT
