"""The service without a socket. If a streamed body cannot be written, the request ends and the error is raised."""

from pathlib import Path

import msgspec
import pytest

from cordwood.app.in_process import open_in_process_app
from cordwood.settings.settings import Settings


@pytest.mark.timeout(120)
def test_a_streamed_answer_that_cannot_be_written_ends_with_the_error(tmp_path: Path) -> None:
    defaults = Settings()
    serve = msgspec.structs.replace(defaults.serve, data_dir=str(tmp_path / "data"))
    events = b"\n".join(b'{"id": "%d", "event_message": "%b"}' % (number, b"x" * 1000) for number in range(4000))
    with open_in_process_app(msgspec.structs.replace(defaults, serve=serve)) as inside:
        headers = {"content-type": "application/x-ndjson"}
        status, _, response = inside.send("POST", "/api/logs?source_name=postgres.logs", events, headers)
        assert (status, msgspec.json.decode(response)["accepted"]) == (200, 4000)
        written: list[int] = []

        def write(chunk: bytes) -> None:
            written.append(len(chunk))
            raise OSError("the disk is full")

        with pytest.raises(OSError, match="the disk is full"):
            inside.send("GET", "/api/streams/postgres.logs/events?format=ndjson", b"", {}, write)
        # The service still answers requests.
        assert inside.send("GET", "/health", b"", {})[0] == 200
    assert len(written) == 1
