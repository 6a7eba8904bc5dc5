"""Entry points of the forked processes in these tests."""

import socket
import time


def echo(link: socket.socket) -> None:
    """Send all received data back until the other end closes the connection."""
    while piece := link.recv(4096):
        link.sendall(piece)


def sleep(_: socket.socket) -> None:
    """Sleep, and never read from the connection."""
    time.sleep(600)
