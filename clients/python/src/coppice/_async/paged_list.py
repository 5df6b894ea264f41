"""Lists in pages."""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice.errors import CoppiceError

Item = TypeVar("Item")

# A service whose cursor never ends must not make the client loop forever.
_MAX_PAGES = 10_000


class AsyncPagedList(Generic[Item]):
    """A list that the client fetches page by page. A page is fetched only when it is needed.

    Every loop starts at the first page. Raises `CoppiceError`; the code is `invalid_response` for a list without an
    end.

    Example:
        async for sandbox in client.sandboxes.list():
            print(sandbox.id)
        sandboxes = await client.sandboxes.list().all()
    """

    def __init__(
        self,
        transport: AsyncTransport,
        *,
        path: str,
        query: str = "",
        parse_page: Callable[[Any], builtins.list[Item]],
        limit: int | None = None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._query = query
        self._parse_page = parse_page
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[Item]:
        """Yields one item after the other."""
        async for page in self.pages():
            for item in page:
                yield item

    async def all(self) -> builtins.list[Item]:
        """Returns all items."""
        return [item async for item in self]

    async def pages(self) -> AsyncIterator[builtins.list[Item]]:
        """Yields one page after the other. No page is empty."""
        query: str | None = self._query
        left = self._limit
        for count in range(_MAX_PAGES):
            call = Call(method="GET", path=self._path, query=query or "", idempotent=True)
            items, headers = await self._transport.call_page(call, self._parse_page)
            if left is not None:
                items = items[:left]
                left -= len(items)
            if items:
                yield items
            next_query = parse_next_query(headers.get("link"))
            if next_query is None or left == 0:
                return
            if next_query == query:
                raise _endless(count + 1)
            query = next_query
        raise _endless(_MAX_PAGES)


def parse_next_query(link: str | None) -> str | None:
    """Returns the query of the `rel="next"` address in a Link header, or None if there is none.

    Only the query is used: behind a reverse proxy the address may be unreachable, and the key must not be sent to
    another host.
    """
    for address, parameters in re.findall(r"<([^>]*)>([^,<]*)", link or ""):
        if re.search(r';\s*rel="?next"?\s*(;|$)', parameters, re.IGNORECASE):
            _, mark, query = address.partition("?")
            return f"?{query}" if mark else None
    return None


def _endless(pages: int) -> CoppiceError:
    return CoppiceError(f"the list does not end: stopped after {pages} pages", status=0, code="invalid_response")
