"""The HTTP listener and the URL that is reported for it."""

import socket

import pytest

from cordwood.app.service import open_listener, url_of
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
def test_the_reported_url_is_reachable(host: str, url: str) -> None:
    with open_listener(host, 0) as listener:
        reported = url_of(listener)
        assert reported.startswith(url)
        port = int(reported.rpartition(":")[2])
        with socket.create_connection(
            (reported.removeprefix("http://").rpartition(":")[0].strip("[]"), port), timeout=5
        ):
            pass


def test_a_port_in_use_is_refused_with_a_hint() -> None:
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(BadSetting, match=f"The service cannot listen on 127.0.0.1, port {port}") as caught:
            open_listener("127.0.0.1", port)
    assert "--port" in (caught.value.hint or "")


@pytest.mark.parametrize("host", ["no.such.host.invalid", "999.1.1.1"])
def test_a_host_without_a_local_address_is_refused(host: str) -> None:
    with pytest.raises(BadSetting, match="The service cannot listen"):
        open_listener(host, 0)
