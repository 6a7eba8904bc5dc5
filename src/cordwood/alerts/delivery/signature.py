"""The signature of webhooks after Standard Webhooks (https://www.standardwebhooks.com)."""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from cordwood.errors import BadSetting

_PREFIX: Final = "whsec_"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


def read_signing_key(secret: str) -> bytes:
    """Return the bytes of the setting `alerts.signing_secret`, which are empty if nothing is signed."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise BadSetting(
            "alerts.signing_secret begins with whsec_, but no base64 follows.",
            hint='Make one: echo "whsec_$(openssl rand -base64 32)"',
        )
    return key


def webhook_headers(key: bytes, identity: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of a message that is sent at a time in seconds; the id stays the same when it is sent again."""
    # A dot parts the id from what follows.
    own = identity if _ID.fullmatch(identity) else f"msg_{sha256(identity.encode('utf-8', 'replace')).hexdigest()}"
    headers = {"webhook-id": own, "webhook-timestamp": str(timestamp)}
    if not key:
        return headers
    digest = hmac.new(key, f"{own}.{timestamp}.".encode() + body, sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}
