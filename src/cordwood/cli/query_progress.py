"""The progress of a query in a line of the terminal, while a command waits for its answer."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from uuid import uuid4

import msgspec

from cordwood.cli.client import Counterpart, Remote, show_progress
from cordwood.errors import Fault

# When the line appears, and how often it changes.
_FIRST_SECONDS, _PAUSE_SECONDS = 1.0, 0.5
# A service that does not answer sooner does not delay the end of the command for longer.
_TIMEOUT_SECONDS = 2.0


class _Query(msgspec.Struct):
    id: str | None
    seconds: float
    rows_read: int | None
    rows_total: int | None
    part: float | None

    def line(self) -> str:
        if self.rows_read is not None:
            of_total = "" if self.rows_total is None else f" of {self.rows_total:,}"
            return f"{self.seconds:.1f} s, {self.rows_read:,}{of_total} rows read"
        done = "" if self.part is None else f", {int(self.part * 100)} % done"
        return f"{self.seconds:.1f} s{done}"


class _Listed(msgspec.Struct):
    queries: list[_Query]


@contextmanager
def progress_shown(service: Counterpart) -> Iterator[Mapping[str, str]]:
    """Yield the headers of a request whose progress is shown during the block, if a service runs it and on a terminal."""
    if not isinstance(service, Remote) or not sys.stderr.isatty():
        yield {}
        return
    request_id, has_ended = f"cordwood-query-{uuid4().hex}", threading.Event()
    polled = msgspec.structs.replace(service, timeout_seconds=_TIMEOUT_SECONDS)
    thread = threading.Thread(target=_show, args=(polled, request_id, has_ended), daemon=True)
    thread.start()
    try:
        yield {"X-Request-Id": request_id}
    finally:
        has_ended.set()
        thread.join()


def _show(service: Remote, request_id: str, has_ended: threading.Event) -> None:
    pause, is_shown = _FIRST_SECONDS, False
    while not has_ended.wait(pause):
        pause = _PAUSE_SECONDS
        try:
            listed = msgspec.json.decode(service.send("GET", "/api/queries").checked().body, type=_Listed)
        except (Fault, msgspec.MsgspecError):
            # An older service, or one that refuses this request: the answer itself is still waited for.
            break
        for query in listed.queries:
            if query.id == request_id and not has_ended.is_set():
                show_progress(query.line())
                is_shown = True
    if is_shown:
        show_progress("")
