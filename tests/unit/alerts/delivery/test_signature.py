"""Signatures of webhooks by the Standard Webhooks specification, and the verification code of the guide."""

import base64
import re
from pathlib import Path

import pytest

from cordwood.alerts.delivery.deliverer import read_signing_key, webhook_headers
from cordwood.errors import BadSetting

GUIDE_PAGE = Path(__file__).parents[4] / "docs" / "guide" / "alerts.md"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_signature_equals_that_of_the_reference_implementation() -> None:
    body = b'{"test": 2432232314}'
    headers = webhook_headers(read_signing_key(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_without_prefix_is_used_as_the_key() -> None:
    assert read_signing_key("plain") == b"plain"


def test_without_a_secret_there_is_no_signature() -> None:
    assert set(webhook_headers(read_signing_key(""), "m", 1, b"")) == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64", "whsec_a"])
def test_a_secret_that_cannot_be_decoded_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(BadSetting, match="no base64 follows") as raised:
        read_signing_key(secret)
    assert "not base64" not in raised.value.one_line_text()


@pytest.mark.parametrize("identity", ["a.b", "a\r\nx: y", "", "é", "x" * 200])
def test_an_unusual_id_is_replaced_by_its_digest(identity: str) -> None:
    first, second = (webhook_headers(b"k", identity, 1, b"")["webhook-id"] for _ in range(2))
    assert first == second
    assert re.fullmatch(r"msg_[0-9a-f]{64}", first)


def test_the_code_of_the_guide_accepts_only_valid_signatures() -> None:
    snippet = re.findall(r"^```python save verify.py\n(.*?)^```$", GUIDE_PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(compile(snippet, "verify.py", "exec"), names)
    verify = names["is_genuine"]
    assert callable(verify)
    secret = "whsec_" + base64.b64encode(b"0123456789abcdef").decode()
    body = b'{"version":1}'
    headers = dict(webhook_headers(read_signing_key(secret), "msg_1", 1_700_000_000, body))
    assert verify(secret, headers, body, now=1_700_000_100)
    assert verify(
        secret, {**headers, "webhook-signature": "v1,x " + headers["webhook-signature"]}, body, now=1_700_000_100
    )
    assert not verify(secret, headers, body + b" ", now=1_700_000_100)
    assert not verify(secret, {**headers, "webhook-id": "msg_2"}, body, now=1_700_000_100)
    assert not verify(secret, {**headers, "webhook-timestamp": "1700000050"}, body, now=1_700_000_100)
    assert not verify(secret, headers, body, now=1_700_000_400)
    assert not verify("whsec_" + base64.b64encode(b"another").decode(), headers, body, now=1_700_000_100)
