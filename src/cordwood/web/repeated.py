"""Refuse ambiguous requests: a header that must be unique was sent with two values."""

from cordwood.errors import Malformed
from cordwood.web.asgi import Request

# The headers that decide the caller, the stream, and how the body is parsed. List headers (Accept, Content-Encoding)
# may be repeated; a repeated LF-ENDPOINT-REDACT-PII is refused when it is parsed.
_SINGLE = (b"authorization", b"host", b"content-type", b"content-length", b"x-source", b"x-collection")


def check_repeated(request: Request) -> None:
    """Raise Malformed for a unique header that was sent with two values."""
    sent = request.scope["headers"]
    if len(request.headers) == len(sent):
        return
    for single in _SINGLE:
        if len({value for name, value in sent if name == single}) > 1:
            raise Malformed(f"The header {single.decode().title()} was sent twice, with different values.")
