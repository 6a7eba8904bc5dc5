"""Uploads of systemd-journal-upload: entries are stored as they arrive, and the upload is answered when it ends."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from cordwood.app.in_process import _asgi_scope, _run_request
from cordwood.errors import OutOfDisk
from cordwood.ingest.accept import Intake
from cordwood.ingest.formats.journald import JOURNAL_MEDIA_TYPE
from cordwood.web import request_body
from cordwood.web.asgi import Message
from cordwood.web.shippers import journald
from tests.unit.web.shippers.conftest import ShipperSite


def journal_entry(name: str, *, app: str = "app") -> bytes:
    return f"__CURSOR=c-{name}\n__REALTIME_TIMESTAMP=1760000000000000\nMESSAGE={name}\nSYSLOG_IDENTIFIER={app}\n\n".encode()


def upload(
    site: ShipperSite, body: bytes, path: str = "/upload", *, media: str = JOURNAL_MEDIA_TYPE, **headers: str
) -> tuple[int, bytes]:
    answered = site.send("POST", path, body, content_type=media, **headers)
    return answered.status, answered.body


class UploadClient:
    """A client that sends the chunks of a body when the test calls `send`, and collects the answer."""

    def __init__(self, site: ShipperSite, *, path: str = "/upload") -> None:
        headers = {"content-type": JOURNAL_MEDIA_TYPE, "x-api-key": site.inside.private_key_secret}
        self.chunks: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self._app, self._asgi_scope = site.inside.app, _asgi_scope("POST", path, headers)

    def send(self, data: bytes, *, more: bool = True) -> None:
        self.chunks.put_nowait({"type": "http.request", "body": data, "more_body": more})

    async def run(self) -> int:
        async def answer(message: Message) -> None:
            self.sent.append(message)

        await self._app(self._asgi_scope, self.chunks.get, answer)
        return int(self.sent[0]["status"]) if self.sent else 0


def run_upload(site: ShipperSite, task: Callable[[], Any]) -> None:
    site.inside.runner.run(asyncio.wait_for(task(), 30))


def test_an_upload_is_stored_by_label_and_answered_like_systemd_journal_remote(site: ShipperSite) -> None:
    assert upload(site, journal_entry("u-1") + journal_entry("u-2", app="nginx-a") + journal_entry("u-1")) == (
        202,
        b"OK.\n",
    )
    assert (sorted(site.messages("app", "u-")), site.messages("edge", "u-")) == (["u-1"], ["u-2"])
    assert upload(site, journal_entry("u-2") + journal_entry("u-3"), "/journald/edge/upload")[0] == 202
    assert sorted(site.messages("edge", "u-")) == ["u-2", "u-3"]


def test_complete_entries_are_stored_before_the_upload_ends(site: ShipperSite) -> None:
    async def converse() -> None:
        sender = UploadClient(site)
        running = asyncio.ensure_future(sender.run())
        sender.send(journal_entry("early-1") + journal_entry("early-2")[:40])
        await until_stored("early-1", site)
        sender.chunks.put_nowait({"type": "http.disconnect"})
        await running
        assert sender.sent == []
        second_client = UploadClient(site)
        second_client.send(journal_entry("early-1") + journal_entry("early-2"), more=False)
        assert await second_client.run() == 202

    run_upload(site, converse)
    assert sorted(site.messages("app", "early-")) == ["early-1", "early-2"]


async def until_stored(message: str, site: ShipperSite) -> None:
    """Wait until the stream `app` has an event with this message."""
    answer_body = b""
    while message.encode() not in answer_body:
        scope = _asgi_scope("GET", "/api/sources/app/recent?limit=100", {"x-api-key": site.inside.private_key_secret})
        _, _, answer_body = await _run_request(site.inside.app, scope, b"", None)


@pytest.mark.parametrize("secret", ["user:{key}", "{key}:"])
def test_the_key_may_be_in_basic_credentials(site: ShipperSite, secret: str) -> None:
    credentials = base64.b64encode(secret.format(key=site.inside.private_key_secret).encode()).decode()
    answered = site.send(
        "POST",
        "/upload",
        journal_entry("basic"),
        key="",
        content_type=JOURNAL_MEDIA_TYPE,
        authorization=f"Basic {credentials}",
    )
    assert answered.status == 202


def test_a_broken_entry_is_quarantined_and_the_others_are_stored(site: ShipperSite) -> None:
    assert upload(site, journal_entry("q-1") + b"no field\n\n" + journal_entry("q-2"), "/journald/app/upload")[0] == 202
    assert sorted(site.messages("app", "q-")) == ["q-1", "q-2"]
    assert site.quarantined()[0]["reason"].startswith("A line is neither")


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("/upload", {"media": "text/plain"}, 415),
        ("/upload", {"content_encoding": "gzip"}, 415),
        ("/journald/nothing/upload", {}, 404),
        ("/upload", {"key": "wrong"}, 401),
        ("/upload?source_name=nothing", {}, 404),
    ],
)
def test_refusals_are_plain_text(site: ShipperSite, path: str, options: dict[str, str], status: int) -> None:
    answered, body = upload(site, journal_entry("r"), path, **options)
    assert answered == status
    assert body.endswith(b"\n")
    assert not body.startswith(b"{")


def test_an_unknown_label_is_named_in_the_refusal(site: ShipperSite) -> None:
    status, body = upload(site, journal_entry("x", app="unheard-of"))
    assert (status, b"'unheard-of'" in body) == (404, True)


def test_an_upload_waits_for_a_full_disk_without_duplicates(site: ShipperSite) -> None:
    attempts: list[Sequence[int]] = []
    store = Intake.store_body_parts

    async def store_until_disk_full(self: Intake, parts: Any, *arguments: Any, **options: Any) -> Any:
        attempts.append([len(part.parsed_body.events) for part in parts])
        if len(attempts) < 3:
            raise OutOfDisk("The disk is full.")
        return await store(self, parts, *arguments, **options)

    with (
        mock.patch.object(Intake, "store_body_parts", store_until_disk_full),
        mock.patch.object(journald, "_MIN_RETRY_PAUSE_SECONDS", 0.01),
    ):
        assert upload(site, journal_entry("full-1") + journal_entry("full-2"))[0] == 202
        assert attempts == [[2]] * 3
        attempts.clear()
        with mock.patch.object(journald, "MAX_STORE_RETRY_SECONDS", 0.0):
            assert upload(site, journal_entry("full-3"))[0] == 507
    assert sorted(site.messages("app", "full-")) == ["full-1", "full-2"]


def test_an_upload_above_the_rate_is_refused_after_a_wait(site: ShipperSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journald, "MAX_STORE_RETRY_SECONDS", 0.0)
    assert upload(site, journal_entry("slow-1") + journal_entry("slow-2"), "/journald/slow/upload")[0] == 202
    assert upload(site, journal_entry("slow-3"), "/journald/slow/upload")[0] == 429


def test_a_stalled_or_slow_upload_is_refused(site: ShipperSite, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pause() -> None:
        sender = UploadClient(site)
        sender.send(journal_entry("pause-1"))
        monkeypatch.setattr(request_body, "MAX_READ_STALL_SECONDS", 0.05)
        assert await sender.run() == 408

    run_upload(site, pause)
    monkeypatch.undo()
    monkeypatch.setattr(journald, "BODY_RATE_GRACE_SECONDS", -1.0)

    async def drip() -> None:
        sender = UploadClient(site)
        sender.send(b"MESS")
        assert await sender.run() == 408

    run_upload(site, drip)
    assert sorted(site.messages("app", "pause-")) == ["pause-1"]


def test_an_upload_holds_one_entry_at_a_time_in_memory(site: ShipperSite) -> None:
    """Send an entry that is too large, which is quarantined. The entries before and after it are stored."""

    async def converse() -> None:
        sender = UploadClient(site, path="/journald/app/upload")
        sender.send(journal_entry("large-1") + b"MESSAGE=")
        for _ in range(50):
            sender.send(b"x" * 100_000)
        sender.send(b"\n\n" + journal_entry("large-2"), more=False)
        assert await sender.run() == 202

    run_upload(site, converse)
    assert sorted(site.messages("app", "large-")) == ["large-1", "large-2"]
    assert "larger than" in site.quarantined()[0]["reason"]
