"""E-mail over SMTP, encrypted if the server supports it, and always if there is a password."""

import io
import smtplib
import socket
import ssl
from collections.abc import Callable
from email.message import EmailMessage
from typing import Final

from cordwood.alerts.delivery.connections import BoundedFile, Connector, Deadline, with_tls
from cordwood.alerts.delivery.targets import MailAddress, Target
from cordwood.alerts.notification import DeliveryFailed

_ACCEPTED: Final = {250, 251}

# Creates the message, which names the recipients that the server refused.
MakeMessage = Callable[[tuple[str, ...]], EmailMessage]


class Smtp:
    """Sends messages to mail targets."""

    def __init__(self, connector: Connector, context: Callable[[], ssl.SSLContext]) -> None:
        self._connector = connector
        self._context = context

    def send(self, target: Target, message: MakeMessage, deadline: Deadline) -> None:
        """Send a message to every recipient that the server accepts; raise DeliveryFailed if it accepts none."""
        address = target.address
        if not isinstance(address, MailAddress):
            raise TypeError(f"{target} is no target of e-mail")
        with self._connector.connected(target.host, target.port, deadline) as plain:
            connection = with_tls(plain, target.host, self._context()) if address.is_tls else plain
            with connection:
                session = _Session(connection, target.host.rstrip("."), target.port)
                try:
                    self._sign_in(session, address)
                    _send(session, address, message)
                finally:
                    session.close()

    def _sign_in(self, session: "_Session", address: MailAddress) -> None:
        session.ehlo_or_helo_if_needed()
        if not address.is_tls and session.has_extn("starttls"):
            session.starttls(context=self._context())
            session.ehlo()
        elif not address.is_tls and address.user:
            raise DeliveryFailed("The server does not offer STARTTLS, and the password is not sent without it.")
        if address.user:
            session.login(address.user, address.password)


class _Session(smtplib.SMTP):
    """An SMTP session on an existing connection."""

    def __init__(self, connection: socket.socket, host: str, port: int) -> None:
        self._connection = connection
        super().__init__(host, port, local_hostname=_own_name(connection))

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._connection

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(BoundedFile(self.sock))
        return super().getreply()


def _own_name(connection: socket.socket) -> str:
    """Return this end's address for EHLO, because the name of the machine should not be revealed."""
    address = connection.getsockname()[0].partition("%")[0]
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _send(session: _Session, address: MailAddress, message: MakeMessage) -> None:
    code, said = session.mail(address.sender)
    if code != 250:
        raise smtplib.SMTPResponseException(code, said)
    refused: list[str] = []
    for recipient in address.recipients:
        code, said = session.rcpt(recipient)
        if code not in _ACCEPTED:
            refused.append(recipient)
    if len(refused) == len(address.recipients):
        raise smtplib.SMTPResponseException(code, said)
    code, said = session.data(message(tuple(refused)).as_bytes())
    if code != 250:
        raise smtplib.SMTPResponseException(code, said)
    # The answer to QUIT does not matter.
    session.putcmd("quit")
