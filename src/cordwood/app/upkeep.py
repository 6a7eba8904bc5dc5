"""What is done again and again beside serving: sweep old events, write down when keys were used."""

import asyncio
from collections.abc import Awaitable, Callable

from cordwood.errors import Fault
from cordwood.observe.observation import Noted
from cordwood.observe.observer import Observer

SWEEP_SECONDS = 30.0
WRITE_USES_SECONDS = 5.0


async def every(seconds: float, work: Callable[[], object], observer: Observer) -> None:
    """Do the work in a thread, again and again, until cancelled; a fault is told and does not end it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(work)
        except Fault as fault:
            observer.note(Noted(message=fault.told(), level="warning"))


async def settled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait until they are over."""
    for task in tasks:
        task.cancel()
    pending: list[Awaitable[None]] = list(tasks)
    await asyncio.gather(*pending, return_exceptions=True)
