"""The thread on which all requests, heartbeats and event streams of a process run, with an asyncio loop of its own. The program's work
cannot block it: neither a long computation in a thread, nor a task that blocks the loop of an asyncio program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from typing import Any, Awaitable, Callable, Coroutine, Generic, Optional, TypeVar

T = TypeVar("T")


class Call(Generic[T]):
    """Call on its way through the engine. Either its caller gets the result, or `undo` gets it."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], undo: Optional[Callable[[T], Awaitable[None]]]) -> None:
        self.future: "concurrent.futures.Future[T]" = concurrent.futures.Future()
        self._coroutine = coroutine
        self._undo = undo
        self._task: Optional["asyncio.Task[None]"] = None
        self._loop = loop()
        self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self.future.cancelled():
            self._coroutine.close()
        else:
            self._task = self._loop.create_task(self._run())

    async def _run(self) -> None:
        try:
            result = await self._coroutine
        except BaseException as error:
            # An error that nobody waits for is dropped.
            if self.future.set_running_or_notify_cancel():
                self.future.set_exception(error)
        else:
            if self.future.set_running_or_notify_cancel():
                self.future.set_result(result)
            elif self._undo is not None:
                await self._undo(result)

    def abandon(self) -> None:
        """Gives the call up: it is cancelled, and what it has got is given back. Safe in the moment in which it succeeds."""
        if self.future.cancel():
            self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())
        elif self._undo is not None and self.future.exception() is None:
            Call(_awaited(self._undo(self.future.result())), None)

    def result(self) -> T:
        """Waits in this thread. An interrupt (Ctrl-C) gives the call up."""
        try:
            return self.future.result()
        except BaseException:
            if not self.future.done() or self.future.exception() is None:
                self.abandon()
            raise

    async def wait(self) -> T:
        """Waits in the caller's loop. Its cancellation gives the call up."""
        theirs = asyncio.get_running_loop()
        waiter: "asyncio.Future[None]" = theirs.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def done(_: Any) -> None:
            try:
                theirs.call_soon_threadsafe(wake)
            except RuntimeError:
                # The caller's loop was closed meanwhile.
                pass

        self.future.add_done_callback(done)
        try:
            await waiter
        except BaseException:
            self.abandon()
            raise
        return self.future.result()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


_lock = threading.Lock()
_loop: Optional[asyncio.AbstractEventLoop] = None


def loop() -> asyncio.AbstractEventLoop:
    """Returns the loop of the engine, and starts its thread at the first call."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="lockgate", daemon=True).start()
        return _loop


def _forget() -> None:
    """A child of a fork has no threads: it gets an engine of its own."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
