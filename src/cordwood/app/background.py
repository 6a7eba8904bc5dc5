"""Periodic background work: retention, and recording when keys were used."""

import asyncio
from collections.abc import Awaitable, Callable

from cordwood.errors import Fault
from cordwood.observe.observation import Noted
from cordwood.observe.observer import Observer

SWEEP_SECONDS = 30.0
WRITE_USES_SECONDS = 5.0


async def every(seconds: float, work: Callable[[], object], observer: Observer) -> None:
    """Run the work in a thread periodically until cancelled; log errors and continue."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(work)
        except Fault as fault:
            observer.note(Noted(message=fault.told(), level="warning"))


async def cancel_all(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they end."""
    for task in tasks:
        task.cancel()
    pending: list[Awaitable[None]] = list(tasks)
    await asyncio.gather(*pending, return_exceptions=True)
