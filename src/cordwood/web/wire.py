"""The server's HTTP protocol, with our bounds on what stands before a body and our words where it is broken.

The stock protocol answers an address over 64 KiB, or a request it cannot read, with a bare text of 400. Here the
application is told of what was too long, and what cannot be read at all gets the body that every error has.
"""

from uuid import uuid4

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cordwood.errors import AddressTooLong, Fault, HeadersTooLarge, Malformed
from cordwood.web.asgi import Response, mark_fault
from cordwood.web.problems import refusal

# A request line is the method, a space, the address, and " HTTP/1.1" with its line end.
MAX_REQUEST_LINE_BYTES = 64 * 1024
AROUND_THE_ADDRESS_BYTES = len("GET  HTTP/1.1")
MAX_HEADER_BYTES = 64 * 1024


class Wire(HttpToolsProtocol):
    """Give it to the server as its `http` protocol."""

    _address_bytes = 0
    _header_bytes = 0

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._address_bytes = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._address_bytes += len(url)
        if self._address_bytes <= MAX_REQUEST_LINE_BYTES - AROUND_THE_ADDRESS_BYTES:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes <= MAX_HEADER_BYTES:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        fault = self._bound_passed()
        if fault is not None:
            mark_fault(self.scope, fault)
            self.url = b"/"
        super().on_headers_complete()

    def _bound_passed(self) -> Fault | None:
        if self._address_bytes > MAX_REQUEST_LINE_BYTES - AROUND_THE_ADDRESS_BYTES:
            return AddressTooLong(
                "The request line is longer than 64 KiB.", hint="Send the query in the body of a POST."
            )
        if self._header_bytes > MAX_HEADER_BYTES:
            return HeadersTooLarge("The headers are longer than 64 KiB together.")
        return None

    def send_400_response(self, msg: str) -> None:
        fault = Malformed("This is not a request of HTTP/1.1 that can be read.")
        response = refusal(fault, uuid4().hex)
        self.transport.write(_as_written(response))
        self.transport.close()


def _as_written(response: Response) -> bytes:
    body = response.body if isinstance(response.body, bytes) else b""
    headers = [*response.headers, (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return b"HTTP/1.1 400 Bad Request\r\n" + lines + b"\r\n" + body
