"""`POST /upload` of systemd-journal-upload: store entries of a systemd journal while the body still arrives.

A body may be endless, so it is never in memory as a whole. After each chunk, the entries that are complete are stored.
The sender records its position in the journal only when it receives the response. So after an interruption, it sends
some entries again. These are recognised as duplicates by their cursors.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import msgspec

from cordwood.errors import Fault, ServiceDraining, UnsupportedMediaType
from cordwood.ingest.accept import BodyFormat, BodyPartForStream, IngestOutcome
from cordwood.ingest.formats.journald import JOURNAL_MEDIA_TYPE, JournalDecoder, JournalEntry
from cordwood.ingest.limits import MemoryReservation
from cordwood.ingest.parsed_body import LabelledBody
from cordwood.model.definitions import Stream
from cordwood.model.key import Caller
from cordwood.web.asgi import NO_STORE_HEADER, Request, Response
from cordwood.web.credentials import KeyPlaces, key_of_basic_credentials
from cordwood.web.ingest import events_ingested_observation
from cordwood.web.problems import retry_after_headers, status_of
from cordwood.web.request_body import (
    BODY_RATE_GRACE_SECONDS,
    MIN_BODY_BYTES_PER_SECOND,
    ClientDisconnectedError,
    receive_message,
    slow_body_fault,
)
from cordwood.web.route import HandlerContext
from cordwood.web.services import LifecyclePhase, find_or_create_stream
from cordwood.web.shippers.delivery import (
    RETRYABLE_STATUSES,
    admit_sender,
    find_named_stream,
    find_or_create_stream_of_labels,
)

# The sender uses libcurl. The key is the password in the configured URL, which libcurl sends as Basic credentials.
_KEY_PLACES: Final = KeyPlaces(key_extractors_by_scheme={b"basic": key_of_basic_credentials})
_PLAIN_TEXT_HEADER: Final = (b"content-type", b"text/plain; charset=utf-8")
_DECODED_CHUNK_BYTES: Final = 16 * 1024
# Up to this size, no memory is reserved for the unfinished entry of an upload.
_MAX_UNRESERVED_ENTRY_BYTES: Final = 16 * 1024
# The maximum time for which storing the entries of a chunk is retried. During this time, no more of the body is read.
MAX_STORE_RETRY_SECONDS: Final = 60.0
_MAX_RETRY_PAUSE_SECONDS: Final = 2.0
_MIN_RETRY_PAUSE_SECONDS: Final = 0.2


async def receive_upload(context: HandlerContext) -> Response:
    """Store the entries of an upload. The stream may be named in the path."""
    caller, query = admit_sender(context, _KEY_PLACES)
    request, services = context.request, context.services()
    if request.media_type() != JOURNAL_MEDIA_TYPE or request.joined_header(b"content-encoding"):
        raise UnsupportedMediaType(f"An upload is {JOURNAL_MEDIA_TYPE}, without a content coding.")
    named = await find_named_stream(context, caller, query)
    if context.path_argument:
        named = await find_or_create_stream(services, caller, context.path_argument)
    # Open a reservation, although without memory, because this limits the number of uploads of a key at the same time.
    with services.intake.body_budget.open_reservation(caller.key_id), ExitStack() as exit_stack:
        await _JournalUpload(context, caller, named, exit_stack).receive_and_store()
    return Response(202, [_PLAIN_TEXT_HEADER, NO_STORE_HEADER], b"OK.\n")


def render_error(fault: Fault, _: Request) -> Response:
    """Render an error as text, which the sender writes to its log.

    After any error, the sender exits, and systemd starts it again.
    """
    status = status_of(fault)
    return Response(
        status,
        [_PLAIN_TEXT_HEADER, NO_STORE_HEADER, *retry_after_headers(fault, status)],
        f"{fault.one_line_text()}\n".encode(),
    )


class _JournalUpload:
    """An upload that is being received. When `exit_stack` is closed, the memory of the unfinished entry is released."""

    def __init__(self, context: HandlerContext, caller: Caller, named: Stream | None, exit_stack: ExitStack) -> None:
        self._handler_context = context
        self._caller = caller
        self._named_stream = named
        self._exit_stack = exit_stack
        self._intake = context.services().intake
        self._decoder = JournalDecoder(self._intake.max_item_bytes)
        self._unfinished_entry_reservation: MemoryReservation | None = None
        self._entry_count = 0
        self._received_bytes = 0
        self._body_wait_seconds = 0.0

    async def receive_and_store(self) -> None:
        has_more = True
        while has_more:
            data, has_more = await self._receive_chunk()
            entries = await self._decode_chunk(data)
            if not has_more:
                entries += self._decoder.finish()
            if entries:
                await self._store_with_retries(entries, len(data))
            self._reserve_unfinished_entry(self._decoder.buffered_bytes)
            if has_more and self._handler_context.dependencies.lifecycle.phase is LifecyclePhase.DRAINING:
                raise ServiceDraining("The service is stopping.", retry_after=5)

    async def _receive_chunk(self) -> tuple[bytes, bool]:
        """Receive a chunk of the body; return the chunk, and whether more follows.

        Raise RequestTooSlow if the sender pauses for too long, or has been too slow on average.
        """
        began = time.monotonic()
        message = await receive_message(self._handler_context.request, self._unfinished_entry_reservation)
        self._body_wait_seconds += time.monotonic() - began
        if message["type"] == "http.disconnect":
            # Do not store the part of the entry that has arrived, because the sender will send this entry again.
            raise ClientDisconnectedError
        data: bytes = message.get("body", b"")
        self._received_bytes += len(data)
        if self._received_bytes < (self._body_wait_seconds - BODY_RATE_GRACE_SECONDS) * MIN_BODY_BYTES_PER_SECOND:
            raise slow_body_fault()
        return data, bool(message.get("more_body", False))

    async def _decode_chunk(self, data: bytes) -> list[JournalEntry]:
        if len(data) <= _DECODED_CHUNK_BYTES:
            return self._decoder.feed(data)
        return await asyncio.to_thread(self._decoder.feed, data)

    async def _store_with_retries(self, entries: Sequence[JournalEntry], body_bytes: int) -> None:
        """Store entries, and try again after a temporary error.

        If the error ended the upload instead, the sender would send the whole upload again.
        """
        gives_up_at = time.monotonic() + MAX_STORE_RETRY_SECONDS
        body = self._label_entries(entries)
        while body.parts_by_labels:
            try:
                await self._store(body, body_bytes)
            except Fault as fault:
                is_draining = self._handler_context.dependencies.lifecycle.phase is LifecyclePhase.DRAINING
                if status_of(fault) not in RETRYABLE_STATUSES or is_draining or time.monotonic() > gives_up_at:
                    raise
                await asyncio.sleep(
                    min(max(_MIN_RETRY_PAUSE_SECONDS, fault.retry_after or 0.0), _MAX_RETRY_PAUSE_SECONDS)
                )
            else:
                return

    async def _store(self, body: LabelledBody, body_bytes: int) -> None:
        with self._intake.body_budget.open_reservation(self._caller.key_id) as reservation:
            reservation.reserve(body_bytes)
            reservation.mark_body_complete()
            parts = [
                # `store_body_parts` empties the parts that it gets, but a retry would need them. So pass copies.
                BodyPartForStream(
                    await self._find_stream(labels),
                    msgspec.structs.replace(
                        parsed, refused_items=list(parsed.refused_items), out_of_time_bounds_counts=Counter()
                    ),
                )
                for labels, parsed in body.parts_by_labels.items()
            ]
            outcomes = await self._intake.store_body_parts(
                parts, body_bytes, BodyFormat.JOURNALD, self._caller.pins or None
            )
        self._log_ingestion(parts, outcomes)

    async def _find_stream(self, labels: tuple[str, ...]) -> Stream:
        if self._named_stream is None:
            return await find_or_create_stream_of_labels(self._handler_context, self._caller, labels)
        self._intake.check_stream_rate(self._named_stream)
        return self._named_stream

    def _label_entries(self, entries: Sequence[JournalEntry]) -> LabelledBody:
        body = LabelledBody(max_item_bytes=self._intake.max_item_bytes)
        for entry in entries:
            labels = (entry.sender_name,) if entry.sender_name and self._named_stream is None else ()
            entry.add_to_body(body.part_for_labels(*labels), self._entry_count)
            self._entry_count += 1
        return body

    def _reserve_unfinished_entry(self, held_bytes: int) -> None:
        """Reserve memory for the unfinished entry, which has `held_bytes`; raise BacklogFull if there is too little."""
        if held_bytes <= _MAX_UNRESERVED_ENTRY_BYTES:
            self._exit_stack.close()
            self._unfinished_entry_reservation = None
            return
        if self._unfinished_entry_reservation is None:
            self._unfinished_entry_reservation = self._exit_stack.enter_context(
                self._intake.body_budget.open_reservation(self._caller.key_id)
            )
        if held_bytes > self._unfinished_entry_reservation.held_bytes:
            self._unfinished_entry_reservation.reserve(held_bytes - self._unfinished_entry_reservation.held_bytes)

    def _log_ingestion(self, parts: Sequence[BodyPartForStream], outcomes: Sequence[IngestOutcome]) -> None:
        request, observer = self._handler_context.request, self._handler_context.dependencies.observer
        if self._named_stream is not None:
            request.log_fields["stream"] = self._named_stream.name
        for part, accepted in zip(parts, outcomes, strict=True):
            observer.record(events_ingested_observation(part.stream, accepted))
