"""The targets of alerts, parsed from the settings. Each target has a name, a kind and an address."""

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from cordwood.errors import BadSetting

_TARGET_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST_PATTERN: Final = re.compile(
    r"(?=.{1,253}\Z)(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)(?:\.[A-Za-z0-9_-]{1,63})*\.?"
)
_IPV6_PATTERN: Final = re.compile(r"[0-9A-Fa-f:.]+")
_MAIL_ADDRESS_PATTERN: Final = re.compile(
    r"(?=.{1,64}@)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
    r"@(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*"
)
_PRINTABLE_ASCII_PATTERN: Final = re.compile(r"[\x21-\x7e]*")
_MAX_MAIL_RECIPIENTS: Final = 50
# Parts of a URL path or query that are shorter than this are not treated as secrets: removing such short texts from
# error messages would make the messages unreadable.
_MIN_SECRET_LENGTH: Final = 8
_PAGERDUTY_URL_PREFIX: Final = "pagerduty+https://events.pagerduty.com/v2/enqueue?routing_key="


class AlertTargetKind(StrEnum):
    """The kind of a target, which determines the format of its messages."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    ALERTMANAGER = "alertmanager"
    EMAIL = "email"


class HttpAddress:
    """The URL for posting messages, without its host, and the keys that are sent along.

    The object contains secrets. It is a plain class, so that its repr does not show the secrets and msgspec cannot
    encode them.
    """

    def __init__(self, *, is_tls: bool, path: str, authorization: str = "", routing_key: str = "") -> None:
        self.uses_tls = is_tls
        self.path_and_query = path
        self.authorization_header = authorization
        self.pagerduty_routing_key = routing_key


class MailAddress:
    """The sender and the recipients of e-mails, and the login at the mail server.

    The object contains secrets. It is a plain class, so that its repr does not show the secrets and msgspec cannot
    encode them.
    """

    def __init__(
        self, *, is_tls: bool, sender: str, recipients: tuple[str, ...], user: str = "", password: str = ""
    ) -> None:
        self.uses_tls = is_tls
        self.sender = sender
        self.recipients = recipients
        self.user = user
        self.password = password


class TargetSecrets:
    """Passwords, keys and secret parts of paths, which are removed from the error message of a failed delivery."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._secrets_longest_first = sorted(set(filter(None, texts)), key=len, reverse=True)

    def remove_secrets_from(self, text: str) -> str:
        for secret in self._secrets_longest_first:
            text = text.replace(secret, "…")
        return text


class AlertTarget(msgspec.Struct, frozen=True):
    """A target of alerts. Only its name, kind and host may be shown: see `public_fields`."""

    name: str
    kind: AlertTargetKind
    host: str
    port: int
    address: HttpAddress | MailAddress
    secrets: TargetSecrets

    def __repr__(self) -> str:
        return f"AlertTarget(name={self.name!r}, kind={self.kind.value!r}, host={self.host!r})"

    @property
    def max_changes_per_notification(self) -> int:
        """The maximum number of changes in one notification. Further changes are sent in the next notification."""
        return MAX_CHANGES_BY_TARGET_KIND[self.kind]

    def public_fields(self) -> Mapping[str, str]:
        """Return the target as it may be shown, without secrets."""
        return {"name": self.name, "kind": self.kind.value, "host": self.host}


# The maximum number of changes in one notification. Messages of most kinds must be short enough to be read or parsed.
# PagerDuty accepts one change per request, so its number limits the requests for one notification.
MAX_CHANGES_BY_TARGET_KIND: Final = {
    AlertTargetKind.WEBHOOK: 100,
    AlertTargetKind.SLACK: 20,
    AlertTargetKind.PAGERDUTY: 20,
    AlertTargetKind.ALERTMANAGER: 100,
    AlertTargetKind.EMAIL: 50,
}


class _InvalidTargetAddress(Exception):
    """Raised if the address of a target is invalid. The text describes the error, but has no part of the address."""


def read_targets(text: str) -> Mapping[str, AlertTarget]:
    """Parse the setting `alerts.targets`; raise BadSetting if an entry is invalid.

    The error names the target, but contains no part of the target's address, because the address has secrets.
    """
    found: dict[str, AlertTarget] = {}
    for number, line in enumerate(filter(str.strip, text.splitlines()), 1):
        name, equals, address = (part.strip() for part in line.partition("="))
        if not equals or _TARGET_NAME_PATTERN.fullmatch(name) is None:
            raise BadSetting(
                f"alerts.targets: entry {number} is not of the form name = address.",
                hint="A name has letters, digits, dots, hyphens and underscores, at most 64.",
            )
        if name in found:
            raise BadSetting(f"alerts.targets: {name} is given twice.")
        try:
            found[name] = _read_target(name, address)
        except _InvalidTargetAddress as problem:
            raise BadSetting(f"alerts.targets: {name}: {problem}.", hint=_ADDRESS_FORMATS_HINT) from None
    return found


def _read_target(name: str, address: str) -> AlertTarget:
    scheme, colon, rest = address.partition(":")
    if not colon:
        raise _InvalidTargetAddress("the address has no scheme")
    if scheme == "pagerduty" and not rest.startswith("//"):
        address = _PAGERDUTY_URL_PREFIX + quote(rest, safe="")
    if _PRINTABLE_ASCII_PATTERN.fullmatch(address) is None:
        raise _InvalidTargetAddress(
            "the address has spaces, control characters or letters outside of ASCII, which are to be encoded"
        )
    try:
        url = urlsplit(address)
        port = url.port
    except ValueError:
        raise _InvalidTargetAddress("the host or port of the address cannot be read") from None
    reader = _ADDRESS_READERS_BY_SCHEME.get(url.scheme)
    if reader is None:
        raise _InvalidTargetAddress("the scheme of the address is unknown")
    if url.fragment:
        raise _InvalidTargetAddress("the address has a fragment (#)")
    kind, usual_port, read = reader
    made = read(url)
    return AlertTarget(name, kind, _read_host(url), port or usual_port, made, _collect_secrets(made))


def _read_host(url: SplitResult) -> str:
    host = url.hostname or ""
    is_bracketed = "[" in url.netloc.rpartition("@")[2]
    if (_IPV6_PATTERN if is_bracketed else _HOST_PATTERN).fullmatch(host) is None:
        raise _InvalidTargetAddress(
            "the address has no valid host; names outside of ASCII are to be written in Punycode (xn--…)"
        )
    return host


def _read_http_address(url: SplitResult) -> HttpAddress:
    path = url.path or "/"
    return HttpAddress(
        is_tls=url.scheme.endswith("+https"),
        path=f"{path}?{url.query}" if url.query else path,
        authorization=_basic_authorization_header(url),
    )


def _read_slack_address(url: SplitResult) -> HttpAddress:
    if url.path in {"", "/"}:
        raise _InvalidTargetAddress("the address has no path, which is its secret part")
    return _read_http_address(url)


def _read_pagerduty_address(url: SplitResult) -> HttpAddress:
    values = parse_qsl(url.query, keep_blank_values=True)
    keys = [value for name, value in values if name == "routing_key"]
    if len(keys) != 1 or re.fullmatch(r"[A-Za-z0-9_-]{1,128}", keys[0]) is None:
        raise _InvalidTargetAddress("the routing key is missing or has unusual characters")
    rest = urlencode([(name, value) for name, value in values if name != "routing_key"])
    made = _read_http_address(url._replace(query=rest, path=url.path or "/v2/enqueue"))
    made.pagerduty_routing_key = keys[0]
    return made


def _read_alertmanager_address(url: SplitResult) -> HttpAddress:
    if url.query:
        raise _InvalidTargetAddress("the address has a query, which Alertmanager does not read")
    path = url.path.rstrip("/")
    suffix = "/api/v2/alerts"
    return _read_http_address(url._replace(path=path if path.endswith(suffix) else path + suffix))


def _read_mail_address(url: SplitResult) -> MailAddress:
    if url.path not in {"", "/"}:
        raise _InvalidTargetAddress("the address has a path")
    values = parse_qsl(url.query, keep_blank_values=True)
    if {name for name, _ in values} - {"from", "to"}:
        raise _InvalidTargetAddress("only from= and to= are known behind the question mark")
    senders = [value for name, value in values if name == "from"]
    recipients = tuple(one.strip() for name, value in values if name == "to" for one in value.split(","))
    if len(senders) != 1 or not recipients:
        raise _InvalidTargetAddress("the address needs one from= and a to=")
    if not all(map(_MAIL_ADDRESS_PATTERN.fullmatch, (*senders, *recipients))):
        raise _InvalidTargetAddress("from= or to= is not a plain e-mail address")
    if len(recipients) > _MAX_MAIL_RECIPIENTS:
        raise _InvalidTargetAddress(f"to= has more than {_MAX_MAIL_RECIPIENTS} addresses")
    user, password = _read_credentials(url)
    return MailAddress(
        is_tls=url.scheme == "smtps", sender=senders[0], recipients=recipients, user=user, password=password
    )


def _basic_authorization_header(url: SplitResult) -> str:
    user, password = _read_credentials(url)
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}" if user else ""


def _read_credentials(url: SplitResult) -> tuple[str, str]:
    """Return the decoded user and password of a URL. Both are empty if the URL has none."""
    user, password = unquote(url.username or ""), unquote(url.password or "")
    if re.fullmatch(r"[\x20-\x7e]*", user + password) is None:
        raise _InvalidTargetAddress("the user or the password has characters outside of printable ASCII")
    if "@" in url.netloc and not (user and password):
        raise _InvalidTargetAddress("the user or the password is empty")
    return user, password


def _collect_secrets(address: HttpAddress | MailAddress) -> TargetSecrets:
    """Collect the secrets of an address in each form in which they are sent.

    A response may repeat them in any of these forms, and they must then be removed from the error message.
    """
    if isinstance(address, MailAddress):
        forms = (address.password, f"\0{address.user}\0{address.password}")
        encoded = [base64.b64encode(form.encode()).decode() for form in forms] if address.password else []
        return TargetSecrets([address.password, *encoded])
    path, _, query = address.path_and_query.partition("?")
    # The path of Alertmanager's API is public, so it is not a secret.
    parts = (
        []
        if path.endswith("/api/v2/alerts")
        else [address.path_and_query, path, query, *re.split(r"[/?&=]", address.path_and_query)]
    )
    login = address.authorization_header.removeprefix("Basic ")
    password = base64.b64decode(login).decode().partition(":")[2]
    long_parts = [part for part in parts if len(part) >= _MIN_SECRET_LENGTH]
    return TargetSecrets([*long_parts, address.pagerduty_routing_key, login, password])


_AddressReader = Callable[[SplitResult], HttpAddress | MailAddress]
_ADDRESS_READERS_BY_SCHEME: Final[Mapping[str, tuple[AlertTargetKind, int, _AddressReader]]] = {
    f"{kind}+{scheme}": (kind, port, read)
    for kind, read in (
        (AlertTargetKind.WEBHOOK, _read_http_address),
        (AlertTargetKind.SLACK, _read_slack_address),
        (AlertTargetKind.PAGERDUTY, _read_pagerduty_address),
        (AlertTargetKind.ALERTMANAGER, _read_alertmanager_address),
    )
    for scheme, port in (("https", 443), ("http", 80))
} | {
    "smtp": (AlertTargetKind.EMAIL, 587, _read_mail_address),
    "smtps": (AlertTargetKind.EMAIL, 465, _read_mail_address),
}

_ADDRESS_FORMATS_HINT: Final = (
    "Addresses are webhook+https://…, slack+https://…, pagerduty:KEY, alertmanager+https://…,"
    " or smtp://user:password@host/?from=…&to=… ."
)
