"""The deliverer built from settings, and errors in these settings."""

from pathlib import Path

import pytest

from cordwood.alerts.delivery.deliverer import NotificationDeliverer
from cordwood.errors import BadSetting
from cordwood.settings.load import load_settings
from cordwood.settings.settings import AlertSettings


def test_the_default_settings_have_no_targets() -> None:
    assert not NotificationDeliverer.from_settings(AlertSettings()).targets_by_name


def test_targets_come_from_a_table_or_from_lines(tmp_path: Path) -> None:
    file = tmp_path / "cordwood.toml"
    file.write_text('[alerts.targets]\nops = "pagerduty:KEY"\nteam = "webhook+https://example.com/?a=b"\n')
    lines = "ops = pagerduty:KEY\nteam = webhook+https://example.com/?a=b"
    for loaded in (
        load_settings(config=file, environment={}),
        load_settings(environment={"CORDWOOD_ALERTS_TARGETS": lines}),
    ):
        assert [
            target.public_fields()
            for target in NotificationDeliverer.from_settings(loaded.settings.alerts).targets_by_name.values()
        ] == [
            {"name": "ops", "kind": "pagerduty", "host": "events.pagerduty.com"},
            {"name": "team", "kind": "webhook", "host": "example.com"},
        ]


def test_the_default_rate_is_ten_messages_a_minute() -> None:
    assert (
        load_settings(environment={"CORDWOOD_ALERTS_SEND_RATE": "10/m"}).settings.alerts.send_rate
        == AlertSettings().send_rate
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (AlertSettings(targets="x"), "entry 1 is not of the form"),
        (AlertSettings(signing_secret="whsec_!"), "no base64 follows"),
        (AlertSettings(refuse_addresses="lan"), "'lan' is not a kind of address"),
        (AlertSettings(external_url="logs.example.com"), "alerts.external_url is not an address"),
        (AlertSettings(external_url="https://logs.example.com/?a=b"), "alerts.external_url is not an address"),
        (AlertSettings(external_url="https://logs.example.com/ "), "alerts.external_url is not an address"),
        (AlertSettings(external_url="https://["), "alerts.external_url is not an address"),
        (AlertSettings(targets="am = alertmanager+http://127.0.0.1:9093"), "am: 127.0.0.1 is a loopback address"),
        (AlertSettings(targets="am = alertmanager+http://localhost:9093"), "am: localhost is a loopback address"),
        (AlertSettings(targets="am = alertmanager+http://[::ffff:169.254.169.254]"), "is a link-local address"),
    ],
)
def test_invalid_settings_are_refused(settings: AlertSettings, problem: str) -> None:
    with pytest.raises(BadSetting, match=problem):
        NotificationDeliverer.from_settings(settings)


def test_loopback_may_be_allowed() -> None:
    allowed = AlertSettings(
        targets="am = alertmanager+http://127.0.0.1:9093",
        refuse_addresses="link-local",
        external_url="https://logs.example.com/cordwood",
    )
    assert NotificationDeliverer.from_settings(allowed).targets_by_name["am"].host == "127.0.0.1"
