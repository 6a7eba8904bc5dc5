"""Entry points of the forked processes in these tests."""

import socket
import time


def echo(link: socket.socket) -> None:
    """Send received data back until the other end is closed."""
    while piece := link.recv(4096):
        link.sendall(piece)


def sleep(_: socket.socket) -> None:
    """Sleep without reading the connection."""
    time.sleep(600)
