"""Parsing of alert targets, whose secrets are not in error messages or representations."""

import msgspec
import pytest

from cordwood.alerts.delivery.targets import AlertTargetKind, HttpAddress, MailAddress, read_targets
from cordwood.errors import BadSetting


@pytest.mark.parametrize(
    ("address", "kind", "host", "port", "path"),
    [
        ("webhook+https://example.com/hook?a=b", AlertTargetKind.WEBHOOK, "example.com", 443, "/hook?a=b"),
        ("webhook+http://example.com", AlertTargetKind.WEBHOOK, "example.com", 80, "/"),
        ("webhook+http://[2001:db8::1]:8080/x", AlertTargetKind.WEBHOOK, "2001:db8::1", 8080, "/x"),
        (
            "slack+https://hooks.slack.com/services/T/B/x",
            AlertTargetKind.SLACK,
            "hooks.slack.com",
            443,
            "/services/T/B/x",
        ),
        ("pagerduty:R0UTING", AlertTargetKind.PAGERDUTY, "events.pagerduty.com", 443, "/v2/enqueue"),
        ("pagerduty+http://pd.test:81/q?routing_key=R0&x=1", AlertTargetKind.PAGERDUTY, "pd.test", 81, "/q?x=1"),
        ("alertmanager+http://am.test:9093", AlertTargetKind.ALERTMANAGER, "am.test", 9093, "/api/v2/alerts"),
        ("alertmanager+https://am.test/am/", AlertTargetKind.ALERTMANAGER, "am.test", 443, "/am/api/v2/alerts"),
    ],
)
def test_http_addresses_are_read(address: str, kind: AlertTargetKind, host: str, port: int, path: str) -> None:
    target = read_targets(f"team = {address}")["team"]
    assert (target.name, target.kind, target.host, target.port) == ("team", kind, host, port)
    assert isinstance(target.address, HttpAddress)
    assert (target.address.path_and_query, target.address.uses_tls) == (
        path,
        "+https" in address or address == "pagerduty:R0UTING",
    )


def test_a_routing_key_is_not_part_of_the_path() -> None:
    for address in ("pagerduty:R0UTING", "pagerduty+https://events.eu.pagerduty.com/v2/enqueue?routing_key=R0UTING"):
        parsed = read_targets(f"ops = {address}")["ops"].address
        assert isinstance(parsed, HttpAddress)
        assert (parsed.pagerduty_routing_key, parsed.path_and_query) == ("R0UTING", "/v2/enqueue")


def test_e_mail_addresses_are_read() -> None:
    text = "mail = smtp://bob:p%40ss%2Fword@mail.test/?from=cord@x.test&to=a@x.test,b@y.test\ntls=smtps://mail.test?from=a@b.test&to=c@d.test"
    plain, tls = read_targets(text).values()
    assert (plain.kind, plain.host, plain.port, tls.port) == (AlertTargetKind.EMAIL, "mail.test", 587, 465)
    assert isinstance(plain.address, MailAddress)
    assert isinstance(tls.address, MailAddress)
    assert (plain.address.user, plain.address.password) == ("bob", "p@ss/word")
    assert (plain.address.sender, plain.address.recipients) == ("cord@x.test", ("a@x.test", "b@y.test"))
    assert (plain.address.uses_tls, tls.address.uses_tls, tls.address.user) == (False, True, "")


def test_secrets_are_not_in_representations() -> None:
    target = read_targets("t = webhook+https://user:hunter2222@example.com/services/SECRETPATH")["t"]
    assert repr(target) == "AlertTarget(name='t', kind='webhook', host='example.com')"
    assert target.public_fields() == {"name": "t", "kind": "webhook", "host": "example.com"}
    with pytest.raises(TypeError):
        msgspec.json.encode(target)
    assert target.secrets.remove_secrets_from("no SECRETPATH for hunter2222, /services/SECRETPATH") == "no … for …, …"
    short = read_targets("t = pagerduty:KEY\nm = smtp://u:pw@x.test/?from=a@x.test&to=b@y.test")
    assert [address.secrets.remove_secrets_from("KEY and pw, AHUAcHc=") for address in short.values()] == [
        "… and pw, AHUAcHc=",
        "KEY and …, …",
    ]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("example.com/SECRET", "no scheme"),
        ("https://example.com/SECRET", "scheme of the address is unknown"),
        ("ftp+https://example.com/SECRET", "scheme of the address is unknown"),
        ("webhook+https:///SECRET", "no valid host"),
        ("webhook+https://exa mple.com/SECRET", "spaces"),
        ("webhook+https://bücher.example/SECRET", "outside of ASCII"),
        ("webhook+https://a..b/SECRET", "no valid host"),
        ("webhook+https://%6c/SECRET", "no valid host"),
        ("webhook+https://[::1/SECRET", "cannot be read"),
        ("webhook+https://[fe80::1%25eth0]/SECRET", "no valid host"),
        ("webhook+https://example.com:SECRET/", "cannot be read"),
        ("webhook+https://example.com:99999/SECRET", "cannot be read"),
        ("webhook+https://example.com/SECRET#x", "fragment"),
        ("webhook+https://SECRET@example.com/", "user or the password is empty"),
        ("slack+https://hooks.slack.com", "no path"),
        ("pagerduty:", "routing key"),
        ("pagerduty:SECRET KEY", "routing key"),
        ("pagerduty:SECRET?x=y", "routing key"),
        ("pagerduty+https://x.test/", "routing key"),
        ("alertmanager+http://am.test/?SECRET=1", "query"),
        ("smtp://mail.test/?to=a@x.test", "one from="),
        ("smtp://mail.test/?from=a@x.test", "to="),
        ("smtp://mail.test/?from=a@x.test&to=SECRET", "e-mail address"),
        ("smtp://mail.test/?from=a@x.test&to=a@x.test%0d%0aBcc:SECRET@y.test", "e-mail address"),
        ("smtp://mail.test/?from=a..b@x.test&to=a@x.test", "e-mail address"),
        ("smtp://mail.test/?from=a@x.test&to=a@x.test&bcc=SECRET@y.test", "only from= and to="),
        ("smtp://mail.test/SECRET?from=a@x.test&to=a@x.test", "path"),
        ("smtp://u:%00SECRET@mail.test/?from=a@x.test&to=a@x.test", "printable ASCII"),
        (f"smtp://mail.test/?from=a@x.test&to={','.join(['a@x.test'] * 51)}", "more than 50"),
    ],
)
def test_the_error_of_an_invalid_address_names_only_the_target(address: str, problem: str) -> None:
    with pytest.raises(BadSetting, match=r"alerts\.targets: team: ") as raised:
        read_targets(f"team = {address}")
    assert problem in raised.value.message
    assert "SECRET" not in raised.value.one_line_text()
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("text", ["SECRET", "= SECRET", "a b = SECRET", "-x = SECRET", f"{'a' * 65} = SECRET"])
def test_the_error_of_an_entry_without_a_name_has_its_number(text: str) -> None:
    with pytest.raises(BadSetting, match="entry 2 is not of the form name = address") as raised:
        read_targets(f"ok = webhook+https://example.com\n\n{text}")
    assert "SECRET" not in raised.value.one_line_text()


def test_a_duplicate_name_is_refused() -> None:
    with pytest.raises(BadSetting, match="a is given twice"):
        read_targets("a = webhook+https://example.com\na = webhook+https://example.org")
