"""Where a request carries its key: the first place that has one counts, alone."""

from collections.abc import Mapping

from cordwood.web.asgi import Request

BEARER = b"bearer "


def presented(request: Request, query: Mapping[str, str]) -> str | None:
    authorization = request.headers.get(b"authorization", b"")
    if authorization[:7].lower() == BEARER:
        return authorization[7:].strip().decode("latin-1")
    key = request.headers.get(b"x-api-key")
    if key is not None:
        return key.strip().decode("latin-1")
    return query.get("api_key")
