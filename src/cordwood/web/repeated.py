"""Headers that a request has once: sent again with another value, two readers could act on different ones."""

from cordwood.errors import Malformed
from cordwood.web.asgi import Request

# What decides who asks, for which stream, and how the body is read. Lists (Accept, Content-Encoding) may be repeated,
# and a repeated LF-ENDPOINT-REDACT-PII is refused where it is read.
_SINGLE = (b"authorization", b"host", b"content-type", b"content-length", b"x-source", b"x-collection")


def check_repeated(request: Request) -> None:
    """Raise Malformed for a header that was sent with two values where it can have one."""
    sent = request.scope["headers"]
    if len(request.headers) == len(sent):
        return
    for single in _SINGLE:
        if len({value for name, value in sent if name == single}) > 1:
            raise Malformed(f"The header {single.decode().title()} was sent twice, with different values.")
