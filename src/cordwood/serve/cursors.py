"""Cursors: texts that encode where the next page of an answer begins.

A cursor is valid only with the request of the previous page: the same endpoint, parameters and sandbox query. It is
signed, because it contains the time as of which the query is run, and an endpoint may restrict callers to recent
events. It is encrypted, because it contains the time and the id of a row, which the answer may not show. The signature
is also the initialization vector, as in SIV (RFC 5297), so that equal positions have equal cursors.
"""

import base64
import hmac
from hashlib import blake2b

import msgspec

from cordwood.errors import BadParameter
from cordwood.serve.query_request import Position, QueryRequest

_SIGNATURE_BYTES = 16
_SIGNING, _ENCRYPTING = b"cursor signature", b"cursor content"
_MAX_CHARACTERS = 1000
_BEGIN_AGAIN_HINT = "or begin with the first page: without cursor=."


class Cursors:
    """Encodes and decodes cursors. Services with the same secret accept each other's cursors."""

    def __init__(self, secret: bytes) -> None:
        self._signing_key = blake2b(secret, person=_SIGNING).digest()
        self._encryption_key = blake2b(secret, person=_ENCRYPTING).digest()

    def encode(self, request: QueryRequest, position: Position) -> str:
        content = msgspec.msgpack.encode(position)
        signature = self._sign(request, content)
        return base64.urlsafe_b64encode(signature + self._encrypt(content, signature)).decode().rstrip("=")

    def decode(self, text: str, request: QueryRequest) -> Position:
        """Return the position in a cursor; raise BadParameter for an invalid cursor, and for that of another request."""
        try:
            data = base64.b64decode(text[:_MAX_CHARACTERS] + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            data = b""
        signature, encrypted = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        content = self._encrypt(encrypted, signature)
        if not hmac.compare_digest(signature, self._sign(request, content)):
            raise BadParameter(
                "The cursor was changed or belongs to another query, or the endpoint was changed.",
                hint=f"Send the Cordwood-Next of the page before with the same parameters and query, {_BEGIN_AGAIN_HINT}",
            )
        return msgspec.msgpack.decode(content, type=Position)

    def _sign(self, request: QueryRequest, content: bytes) -> bytes:
        endpoint = request.endpoint
        parameters = [request.parameters.get(parameter.name) for parameter in endpoint.parameters]
        parts = (endpoint.id.bytes, endpoint.revision, parameters, request.sandbox, request.redacts, content)
        encoded = msgspec.msgpack.encode(parts)
        return blake2b(encoded, key=self._signing_key, digest_size=_SIGNATURE_BYTES).digest()

    def _encrypt(self, content: bytes, signature: bytes) -> bytes:
        """Encrypt or decrypt with a keystream of keyed hashes over the signature and a counter."""
        blocks = range(-(-len(content) // blake2b.MAX_DIGEST_SIZE))
        hashed = (signature + number.to_bytes(4, "big") for number in blocks)
        stream = b"".join(blake2b(block, key=self._encryption_key).digest() for block in hashed)
        return bytes(byte ^ mask for byte, mask in zip(content, stream, strict=False))
