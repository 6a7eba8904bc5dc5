"""The default stream of OTLP requests."""

from pathlib import Path

import pytest

from cordwood.app.in_process import open_in_process_app
from cordwood.settings.settings import (
    DuckDBSettings,
    IngestSettings,
    LimitSettings,
    ServeSettings,
    Settings,
    WebSettings,
)

OTLP_BODY = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "without a stream"}}]}]}]}'


@pytest.mark.parametrize(("default", "status"), [("postgres.logs", 200), ("", 400)])
def test_otlp_without_a_stream_goes_to_the_default_stream_if_there_is_one(
    tmp_path: Path, default: str, status: int
) -> None:
    settings = Settings(
        serve=ServeSettings(data_dir=str(tmp_path)),
        web=WebSettings(log_level="error"),
        limits=LimitSettings(memory=500 * 10**6),
        duckdb=DuckDBSettings(threads=1),
        ingest=IngestSettings(default_stream=default),
    )
    with open_in_process_app(settings) as inside:
        kind = {"content-type": "application/json"}
        assert inside.send("POST", "/v1/logs", OTLP_BODY, kind)[0] == status
        assert inside.send("POST", "/api/logs", b"{}", kind)[0] == 400
        _, _, recent = inside.send("GET", "/api/sources/postgres.logs/recent", b"", {})
        assert (b"without a stream" in recent) == (status == 200)
