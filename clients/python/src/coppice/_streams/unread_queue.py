"""A bounded queue of received items that are not read yet.

    push ─► unread > pause_at ─► wait_for_room() waits ── read below half, or time passes (pause_at grows) ──► returns
        └─► unread > limit, and a caller only waits for the end ─► all items are dropped

The pings of the service come every 20 s, and may be queued behind data in the buffers of both kernels. So from time to
time the queue accepts some more bytes, up to the limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

UNREAD_LIMIT_BYTES = 64 * 2**20
PAUSE_AT_BYTES = 2**20
PAUSE_STEP_BYTES = 8 * 2**20
PAUSE_STEP_S = 10.0
# Memory of an entry in addition to its message: a million entries of one byte each take more than a megabyte.
_ENTRY_BYTES = 256


class UnreadQueue(Generic[Item]):
    """The queue described at the top of this file."""

    def __init__(self) -> None:
        self._entries: deque[tuple[Item, int]] = deque()
        self._unread_bytes = 0
        self._pause_at_bytes = PAUSE_AT_BYTES
        self._readers = 0
        self._is_awaited = False
        self._is_taking = False
        self._has_ended = False
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self.has_let_go = False
        """True if items were dropped because no caller read them."""

    def push(self, item: Item, message_bytes: int) -> None:
        """Appends an item. `message_bytes` is the size of its message."""
        if self._has_ended or self.has_let_go:
            return
        self._entries.append((item, message_bytes + _ENTRY_BYTES))
        self._unread_bytes += message_bytes + _ENTRY_BYTES
        self._arrived.set()
        self._limit()

    async def wait_for_room(self) -> None:
        """Waits until the next item should be received."""
        while not self._has_ended and not self._only_waits and self._unread_bytes > self._pause_at_bytes:
            self._room.clear()
            try:
                await asyncio.wait_for(self._room.wait(), PAUSE_STEP_S)
            except asyncio.TimeoutError:
                self._pause_at_bytes = min(self._unread_bytes + PAUSE_STEP_BYTES, UNREAD_LIMIT_BYTES)

    async def take(self) -> Item | None:
        """Waits for the next item. Returns None at the end. Raises `RuntimeError` for a second reader."""
        if self._is_taking:
            raise RuntimeError("another loop is already reading this stream")
        self._is_taking = True
        try:
            while not self._entries and not self._has_ended:
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._is_taking = False
        if not self._entries:
            return None
        item, size_bytes = self._entries.popleft()
        self._unread_bytes -= size_bytes
        if self._unread_bytes < PAUSE_AT_BYTES / 2:
            self._pause_at_bytes = PAUSE_AT_BYTES
            self._room.set()
        return item

    def put_back(self, item: Item) -> None:
        """Undoes `take()`, for a reader that was interrupted."""
        self._entries.appendleft((item, _ENTRY_BYTES))
        self._unread_bytes += _ENTRY_BYTES
        self._arrived.set()

    def end(self, *, drop: bool) -> None:
        """Marks the end of the stream. Queued items can still be read unless `drop` is true."""
        self._has_ended = True
        if drop:
            self._clear()
        self._room.set()
        self._arrived.set()

    def begin_reading(self) -> None:
        """Registers a reader."""
        self._readers += 1

    def end_reading(self) -> None:
        """Undoes `begin_reading()`."""
        self._readers -= 1
        self._limit()

    def expect_end(self) -> None:
        """Registers a caller that waits for the end and perhaps reads nothing."""
        self._is_awaited = True
        self._limit()

    @property
    def _only_waits(self) -> bool:
        return self._is_awaited and self._readers == 0

    def _limit(self) -> None:
        if not self._only_waits or self._has_ended:
            return
        self._room.set()
        if self._unread_bytes > UNREAD_LIMIT_BYTES:
            self.has_let_go = True
            self._clear()

    def _clear(self) -> None:
        self._entries.clear()
        self._unread_bytes = 0
