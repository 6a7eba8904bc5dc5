"""Where a service listens, and where it says it is found."""

import socket

import pytest

from cordwood.app.listener import listen, url_of
from cordwood.errors import BadSetting


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("localhost", "http://"),
        ("0.0.0.0", "http://127.0.0.1:"),
        ("::1", "http://[::1]:"),
        ("::", "http://127.0.0.1:"),
        ("", "http://127.0.0.1:"),
    ],
)
def test_the_address_told_is_one_that_reaches_it_from_here(host: str, url: str) -> None:
    with listen(host, 0) as listener:
        told = url_of(listener)
        assert told.startswith(url)
        port = int(told.rpartition(":")[2])
        with socket.create_connection((told.removeprefix("http://").rpartition(":")[0].strip("[]"), port), timeout=5):
            pass


def test_a_port_that_is_taken_is_refused_with_a_way_out() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadSetting, match=f"The service cannot listen on 127.0.0.1, port {port}") as caught:
            listen("127.0.0.1", port)
    assert "--port" in (caught.value.hint or "")


@pytest.mark.parametrize("host", ["no.such.host.invalid", "999.1.1.1"])
def test_a_host_that_is_none_of_ours_is_refused(host: str) -> None:
    with pytest.raises(BadSetting, match="The service cannot listen"):
        listen(host, 0)
