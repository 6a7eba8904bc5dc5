"""Single flight: concurrent requests for the same key share one run."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from cordwood.engines.engine import CancelToken, Progress
from cordwood.serve.admission import WaitingAccounts

T = TypeVar("T")


class _SharedRun(msgspec.Struct, Generic[T]):
    task: asyncio.Task[T]
    cancel_token: CancelToken
    accounts: WaitingAccounts
    callers: int = 0


class SingleFlight(Generic[T]):
    """Shared runs by key. A run is cancelled when the last caller that waits for it leaves."""

    def __init__(self) -> None:
        self._running: dict[Hashable, _SharedRun[T]] = {}

    def is_running(self, key: Hashable) -> bool:
        return key in self._running

    def progress(self, key: Hashable) -> Progress | None:
        """Return the progress of the run, or None if it is unknown or no such run exists."""
        shared = self._running.get(key)
        return None if shared is None else shared.cancel_token.progress()

    async def join(
        self, key: Hashable, account: str, start_run: Callable[[CancelToken, WaitingAccounts], Awaitable[T]]
    ) -> T:
        """Start a run, or join the running one, and return its result. For a refresh, `account` is SERVICE."""
        shared = self._running.get(key)
        if shared is None:
            shared = self._start(key, account, start_run)
        else:
            shared.accounts.join(account)
        shared.callers += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.callers -= 1
            shared.accounts.leave(account)
            if shared.callers == 0 and not shared.task.done():
                self._abandon(key, shared)

    def _start(
        self, key: Hashable, account: str, start_run: Callable[[CancelToken, WaitingAccounts], Awaitable[T]]
    ) -> _SharedRun[T]:
        cancel_token, accounts = CancelToken(), WaitingAccounts(account)
        shared = _SharedRun(asyncio.ensure_future(start_run(cancel_token, accounts)), cancel_token, accounts)
        self._running[key] = shared
        shared.task.add_done_callback(lambda _: self._finish(key, shared))
        return shared

    def _finish(self, key: Hashable, shared: _SharedRun[T]) -> None:
        if self._running.get(key) is shared:
            del self._running[key]
        if not shared.task.cancelled():
            # Retrieve the exception: if all callers have left, asyncio would log it as unhandled.
            shared.task.exception()

    def _abandon(self, key: Hashable, shared: _SharedRun[T]) -> None:
        del self._running[key]
        shared.cancel_token.cancel()
        shared.task.cancel()
