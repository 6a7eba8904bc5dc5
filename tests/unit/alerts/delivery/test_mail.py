"""Delivery over SMTP: encryption, passwords, recipients, refusals and timeouts."""

import email
import email.policy
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from cordwood.alerts.delivery.connections import read_address_policy
from cordwood.alerts.delivery.deliverer import NotificationDeliverer
from cordwood.alerts.delivery.targets import read_targets
from cordwood.alerts.notification import DeliveryFailed
from tests.certificates import Authority
from tests.machine_speed import scaled
from tests.unit.alerts.delivery.receivers import SmtpReceiver, change, notification, raw_receiver, smtp_receiver

SENDER_AND_RECIPIENTS = "from=cordwood@x.test&to=a@x.test,b@y.test"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server_tls_context(authority: Authority, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign_certificate(name=name))
    return context


def deliver(address: str, authority: Authority | None = None, *, seconds: float = 5.0, text: str = "12 errors") -> None:
    tls = ssl.create_default_context(cafile=str(authority.file)) if authority else None
    deliverer = NotificationDeliverer(
        read_targets(f"team = {address}"), policy=read_address_policy(""), send_seconds=seconds, tls=tls
    )
    deliverer.deliver(deliverer.targets_by_name["team"], notification(change(text=text)))


def delivery_failure(address: str, authority: Authority | None = None, *, seconds: float = 5.0) -> str:
    with pytest.raises(DeliveryFailed) as raised:
        deliver(address, authority, seconds=seconds)
    assert raised.value.__context__ is None
    return raised.value.reason


def command_words(receiver: SmtpReceiver) -> list[str]:
    return [line.upper().split(":")[0].split()[0] for line in receiver.commands]


def test_a_mail_is_sent_to_every_recipient() -> None:
    with smtp_receiver() as receiver:
        deliver(f"smtp://127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}", text=".\r\n.\r\nQUIT ünd <&>")
    assert [line.lower() for line in receiver.commands[:4] if not line.lower().startswith("mail")] == [
        "ehlo [127.0.0.1]",
        "rcpt to:<a@x.test>",
        "rcpt to:<b@y.test>",
    ]
    assert receiver.commands[1].lower().startswith("mail from:<cordwood@x.test>")
    (text,) = receiver.mails
    read = email.message_from_bytes(text, policy=email.policy.default)
    assert read["Subject"] == "[critical] too-many-errors: 1 firing"
    assert "  . . QUIT ünd <&>" in read.get_content().splitlines()


def test_starttls_is_used_if_offered(authority: Authority) -> None:
    with smtp_receiver(starttls=server_tls_context(authority), password="s3cret-word") as receiver:
        deliver(f"smtp://bob:s3cret-word@127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}", authority)
    assert command_words(receiver)[:4] == ["EHLO", "STARTTLS", "EHLO", "AUTH"]
    assert receiver.logins == [("bob", "s3cret-word")]
    assert len(receiver.mails) == 1


def test_the_certificate_is_verified_without_a_password(authority: Authority) -> None:
    with smtp_receiver(starttls=server_tls_context(authority)) as receiver:
        reason = delivery_failure(f"smtp://127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}")
    assert "certificate of 127.0.0.1 is not accepted" in reason
    assert not receiver.mails


def test_no_password_is_sent_without_encryption() -> None:
    with smtp_receiver(password="s3cret-word") as receiver:
        reason = delivery_failure(f"smtp://bob:s3cret-word@127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}")
    assert reason == "The server does not offer STARTTLS, and the password is not sent without it."
    assert command_words(receiver) == ["EHLO"]


def test_smtps_uses_implicit_tls(authority: Authority) -> None:
    with smtp_receiver(tls=server_tls_context(authority), password="s3cret-word") as receiver:
        deliver(f"smtps://bob:s3cret-word@127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}", authority)
    assert command_words(receiver)[:2] == ["EHLO", "AUTH"]
    assert len(receiver.mails) == 1


def test_a_wrong_password_is_reported_without_it(authority: Authority) -> None:
    with smtp_receiver(tls=server_tls_context(authority), password="other") as receiver:
        reason = delivery_failure(
            f"smtps://bob:s3cret-word@127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}", authority
        )
    assert reason == "127.0.0.1 answered 535 wrong …."


def test_a_refused_recipient_does_not_prevent_delivery_to_others() -> None:
    with smtp_receiver(refused=["a@x.test"]) as receiver:
        deliver(f"smtp://127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}")
    assert b"The server did not accept these recipients: a@x.test" in receiver.mails[0]


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"CONNECT": b"554 go away\r\n"}, "answered 554 go away."),
        ({"MAIL": b"451 \x1b[2Jgrey\r\n"}, "answered 451 [2Jgrey."),
        ({"RCPT": b"550 nobody\r\n"}, "answered 550 nobody."),
        ({"DATA": b"554 no data\r\n"}, "answered 554 no data."),
        ({"EHLO": b"500 what\r\n", "HELO": b"500 what\r\n"}, "answered 500 what."),
        ({"EHLO": b"x" * 9000 + b"\r\n"}, "answered 500 Line too long."),
        ({"MAIL": b"250-more\r\n" * 20_000}, "closed the connection|too long"),
    ],
    ids=["connect", "mail", "rcpt", "data", "ehlo", "long", "endless"],
)
def test_a_refusal_of_the_server_is_reported(replies: dict[str, bytes], reason: str) -> None:
    with smtp_receiver(replies=replies) as receiver, pytest.raises(DeliveryFailed, match=reason.replace("[", r"\[")):
        deliver(f"smtp://127.0.0.1:{receiver.port}/?{SENDER_AND_RECIPIENTS}")


def test_a_slow_server_times_out() -> None:
    def script(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(b"220-")
        while not ended.wait(0.05):
            connection.sendall(b"x")

    with raw_receiver(script) as port:
        began = time.monotonic()
        reason = delivery_failure(f"smtp://127.0.0.1:{port}/?{SENDER_AND_RECIPIENTS}", seconds=0.5)
        assert time.monotonic() - began < scaled(3)
    assert reason == "127.0.0.1 gave no complete answer within 0.5 s."


def test_a_closed_connection_is_reported() -> None:
    with raw_receiver(lambda *_: None) as port:
        reason = delivery_failure(f"smtp://127.0.0.1:{port}/?{SENDER_AND_RECIPIENTS}")
    assert reason == "127.0.0.1 closed the connection without an answer."
