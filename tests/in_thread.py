"""Servers on an event loop in a thread of their own, for tests that run the program themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_thread(start: Callable[[AsyncExitStack], Awaitable[T]]) -> Iterator[T]:
    """What ``start`` returns, until the block ends; its stack is then closed in the same loop."""
    found: list[T] = []
    ready, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            found.append(await start(stack))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
