"""What forked processes run in these tests."""

import socket
import time


def echo(link: socket.socket) -> None:
    """Send back what comes, until the other end is closed."""
    while piece := link.recv(4096):
        link.sendall(piece)


def sleep(_: socket.socket) -> None:
    """Ignore the connection, whatever comes or ends."""
    time.sleep(600)
