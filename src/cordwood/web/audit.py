"""The audit log: a line for each request refused because of its key, and for each change of keys and definitions."""

import msgspec

from cordwood.errors import BadKey, Fault, Forbidden, NoKey, RateExceeded
from cordwood.model.key import KeyTerms
from cordwood.observe.observation import Audited, Observer
from cordwood.web.asgi import Request

_REFUSALS = (NoKey, BadKey, Forbidden, RateExceeded)


def audit_refusal(observer: Observer, request: Request, fault: Fault) -> None:
    """Log a refusal that concerns the key. Other errors are not in the audit log."""
    if isinstance(fault, _REFUSALS):
        observer.note(_line(request, "refused", f"{fault.code}: {fault.message}"))


def audit_key_change(
    observer: Observer, request: Request, action: str, key_id: str, terms: KeyTerms | None = None
) -> None:
    scopes = f" ({' '.join(sorted(terms.scopes))})" if terms else ""
    observer.note(_line(request, f"key.{action}", f"key {key_id}{scopes}"))


def audit_replay(observer: Observer, request: Request, item_id: str, stream: str) -> None:
    observer.note(_line(request, "quarantine.replayed", f"item {item_id} to {stream}"))


def audit_definition(observer: Observer, request: Request, action: str, name: str) -> None:
    observer.note(_line(request, action, name))


def audit_backup(observer: Observer, request: Request) -> None:
    observer.note(msgspec.structs.replace(_line(request, "backup.made", "all events and keys"), level="info"))


def _line(request: Request, action: str, subject: str) -> Audited:
    key = request.facts.get("key")
    return Audited(action=action, key=key if isinstance(key, str) else "", subject=subject, request_id=request.id)
