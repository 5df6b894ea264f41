"""An event loop in a thread of its own, for the WebSockets of a synchronous client.

A WebSocket has to be read all the time, for its pings, and cannot be written and read by two threads at once over TLS.
So one thread serves all WebSockets of a client; callers wait for it, and Ctrl-C interrupts their wait.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextlib import suppress
from typing import Any, TypeVar

from coppice.errors import CoppiceError

Value = TypeVar("Value")
Work = Callable[[], Coroutine[Any, Any, Value]]

# For a call that was interrupted, and for the end of the thread.
_END_S = 10.0


class LoopThread:
    """The thread. It ends with `close()`, when the object is discarded, and with the program."""

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._is_closed = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_run, args=(self._loop,), name="coppice-streams", daemon=True)
        thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop, thread, self._process_id)

    @property
    def is_usable(self) -> bool:
        """False after `close()`, and in a child process that was forked: it has no such thread."""
        return not self._is_closed and self._process_id == os.getpid()

    def call(self, work: Work[Value], discard: Callable[[Value], Coroutine[Any, Any, None]] | None = None) -> Value:
        """Does work in the thread and returns its result.

        An interrupted caller cancels the work. If it is too late for that, `discard` gets the result.
        """
        tasks: list[asyncio.Task[Value]] = []

        async def run() -> asyncio.Task[Value]:
            tasks.append(asyncio.ensure_future(work()))
            await asyncio.wait(tasks)
            return tasks[0]

        running = self._submit(run())
        try:
            task = running.result()
        except futures.CancelledError:
            raise _closed() from None
        except BaseException:
            with suppress(futures.TimeoutError, futures.CancelledError, CoppiceError):
                self._cancel(running, tasks, discard)
            raise
        if task.cancelled():
            raise _closed()
        return task.result()

    def close(self) -> None:
        """Ends the thread."""
        with self._lock:
            self._is_closed = True
        self._finalizer()

    def _submit(self, work: Coroutine[Any, Any, Value]) -> futures.Future[Value]:
        # After the lock is released by `close()`, nothing is submitted to a loop that ends.
        with self._lock:
            if self.is_usable:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise _closed()

    def _cancel(
        self,
        running: futures.Future[asyncio.Task[Value]],
        tasks: list[asyncio.Task[Value]],
        discard: Callable[[Value], Coroutine[Any, Any, None]] | None,
    ) -> None:
        async def cancel() -> None:
            for task in tasks:
                task.cancel()

        self._submit(cancel())
        task = running.result(_END_S)
        if discard is not None and not task.cancelled() and task.exception() is None:
            self._submit(discard(task.result())).result(_END_S)


def _closed() -> CoppiceError:
    what = "this connection belongs to a client that was closed, or to another process"
    return CoppiceError(what, status=0, code="closed")


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=_END_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process_id: int) -> None:
    if process_id != os.getpid() or not thread.is_alive():
        return
    loop.call_soon_threadsafe(loop.stop)
    # A discarded object may be collected in the thread itself.
    if thread is not threading.current_thread():
        thread.join(_END_S)
