"""Check the signatures of webhooks: a sender signs the body with a secret that is also in the settings."""

import hashlib
import hmac

import msgspec

from cordwood.errors import BadSignature
from cordwood.ingest.accept import Form
from cordwood.web.asgi import Header, Request


class Webhooks(msgspec.Struct, frozen=True):
    """The secrets by sender; no secret means no check. `vercel_verify` is the token that proves ownership to Vercel."""

    vercel_secret: str = ""
    vercel_verify: str = ""
    github_secret: str = ""


class _SignatureScheme(msgspec.Struct, frozen=True):
    header: bytes
    prefix: str
    digest: str


_SCHEMES = {
    Form.VERCEL: _SignatureScheme(b"x-vercel-signature", "", "sha1"),
    Form.GITHUB: _SignatureScheme(b"x-hub-signature-256", "sha256=", "sha256"),
}


def check_signature(webhooks: Webhooks, request: Request, form: Form, body: bytes) -> None:
    """Raise BadSignature if the sender has a secret in the settings and the body is not signed with it."""
    signed = _SCHEMES.get(form)
    secret = {Form.VERCEL: webhooks.vercel_secret, Form.GITHUB: webhooks.github_secret}.get(form)
    if signed is None or not secret:
        return
    sent = request.header(signed.header) or ""
    right = signed.prefix + hmac.new(secret.encode(), body, getattr(hashlib, signed.digest)).hexdigest()
    if not hmac.compare_digest(sent.lower().encode(), right.encode()):
        problem = "is not that of the body" if sent else "is missing"
        raise BadSignature(
            f"The signature in {signed.header.decode()} {problem}.",
            hint="Sender and service must have the same secret, and nothing on the way may change the body.",
        )


def verification(webhooks: Webhooks, form: Form) -> list[Header]:
    """Return the header with which Vercel verifies the ownership of a log drain."""
    if form is not Form.VERCEL or not webhooks.vercel_verify:
        return []
    return [(b"x-vercel-verify", webhooks.vercel_verify.encode("latin-1", "replace"))]
