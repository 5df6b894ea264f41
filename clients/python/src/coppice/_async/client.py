"""The client of one service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any

import httpx

from coppice._async.disks import AsyncDisks
from coppice._async.events.event_stream import AsyncEventStream
from coppice._async.events.webhooks import AsyncWebhooks
from coppice._async.image_builds import AsyncImageBuilds
from coppice._async.images import AsyncImages
from coppice._async.paged_list import AsyncPagedList
from coppice._async.runtime import StreamTransport
from coppice._async.sandboxes import AsyncSandboxes
from coppice._async.settings.budgets import AsyncBudgets
from coppice._async.settings.organization import AsyncOrganization
from coppice._async.settings.registries import AsyncRegistries
from coppice._async.settings.secrets import AsyncSecrets
from coppice._async.snapshots import AsyncSnapshots
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.events import EVENTS_PATH, event_filter, parse_event
from coppice._core.paths import build_query, encode_segment, format_labels, format_time, require_limit, to_page_items
from coppice._core.records import parse_list, parse_record
from coppice._core.settings import DEFAULT_MAX_RETRIES, DEFAULT_TIMEOUT_MS, resolve_settings
from coppice.errors import CoppiceError
from coppice.models import EventInfo, HistoryEntry, NetworkProfile, Statement, StatementLine, Usage

_STATEMENT_PAGE_LINES = 1000
_parse_statement = parse_record(Statement)


class AsyncCoppice(AsyncDisks):
    """The client of one Coppice service.

    - `api_key`: default: the environment variable `SANDBOX_API_KEY`
    - `base_url`: default: `SANDBOX_BASE_URL`, else `base_url_template`, else `http://127.0.0.1:8080`
    - `base_url_template`: such as `https://{region}.api.example.com`, with the region of the key; default:
      `SANDBOX_BASE_URL_TEMPLATE`
    - `allow_plain_http`: also sends the key over plain HTTP to other hosts; default: `SANDBOX_ALLOW_PLAIN_HTTP`
    - `timeout_ms`: maximum time of a call, or of a transfer without progress
    - `max_retries`: maximum number of retries of a request that is safe to repeat
    - `http_transport`: replaces the transport of httpx, for example for a certificate authority or a proxy
    - `stream_transport`: does the same for WebSockets, which have an event loop in both clients

    Raises `ValueError` for an invalid or missing setting. Every call raises `CoppiceError` when it fails. A client
    holds connections: close it, or use it as a context manager.

    Example:
        async with AsyncCoppice() as client:
            async with await client.sandboxes.create() as sandbox:
                print((await sandbox.exec("uname -a")).stdout)
    """

    base_url: str
    """Address of the service, without a slash at its end."""
    sandboxes: AsyncSandboxes
    """Creates, restores, finds and lists sandboxes."""
    snapshots: AsyncSnapshots
    """Finds, lists, changes and deletes snapshots."""
    images: AsyncImages
    """Lists images and prepares them ahead of their first use."""
    builds: AsyncImageBuilds
    """Builds images from steps or Dockerfiles."""
    organization: AsyncOrganization
    """Reads the audit log of your organization."""
    registries: AsyncRegistries
    """Stores credentials for private image registries."""
    secrets: AsyncSecrets
    """Stores secrets under names, for the credentials of sandboxes."""
    budgets: AsyncBudgets
    """Sets budgets, which make events when a month costs too much."""
    webhooks: AsyncWebhooks
    """Sends events to your own servers."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        base_url_template: str | None = None,
        allow_plain_http: bool | None = None,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        max_retries: int = DEFAULT_MAX_RETRIES,
        http_transport: httpx.AsyncBaseTransport | None = None,
        stream_transport: StreamTransport | None = None,
    ) -> None:
        settings = resolve_settings(
            api_key=api_key,
            base_url=base_url,
            base_url_template=base_url_template,
            allow_plain_http=allow_plain_http,
            timeout_ms=timeout_ms,
            max_retries=max_retries,
        )
        self._transport = AsyncTransport(settings, http_transport, stream_transport)
        self.base_url = settings.base_url
        self.sandboxes = AsyncSandboxes(self._transport)
        self.snapshots = AsyncSnapshots(self._transport)
        self.images = AsyncImages(self._transport)
        self.builds = AsyncImageBuilds(self._transport)
        self.organization = AsyncOrganization(self._transport)
        self.registries = AsyncRegistries(self._transport)
        self.secrets = AsyncSecrets(self._transport)
        self.budgets = AsyncBudgets(self._transport)
        self.webhooks = AsyncWebhooks(self._transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.base_url}>"

    async def aclose(self) -> None:
        """Closes the connections of the client. Sandboxes continue to run."""
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncCoppice:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncEventStream:
        """Follows the events of your organization as they happen, without an end: leave the loop, or close the result.

        It begins after the event with the id `after`, where 0 is the oldest that is kept; by default with the next
        event. `types`, `run_id` and `labels` choose events. It continues after lost connections, and repeats nothing.
        Events that the service no longer keeps are reported as `LostEvents`.

        Example:
            async with client.events(types=["sandbox.failed"]) as events:
                async for event in events:
                    print(event)
        """
        return AsyncEventStream(self._transport, event_filter(types, run_id, labels), after)

    def list_events(
        self,
        *,
        after: int | None = None,
        types: Sequence[str] | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> AsyncPagedList[EventInfo]:
        """Lists the events that the service keeps, oldest first.

        The list raises `CoppiceError` with code `events_lost` when events after `after` are no longer kept.

        Example:
            async for event in client.list_events(run_id=sandbox.id):
                print(event.timestamp, event.type)
        """
        require_limit(limit)
        wanted = event_filter(types, run_id, labels)
        query = build_query({**wanted, "after": after, "limit": to_page_items(limit)})
        return AsyncPagedList(
            self._transport, path=EVENTS_PATH, query=query, parse_page=parse_list(parse_event), limit=limit
        )

    async def network_profiles(self) -> list[NetworkProfile]:
        """Lists the network profiles of the service, with the rules that it enforces.

        Example:
            for profile in await client.network_profiles():
                print(profile.name, profile.description)
        """
        call = Call(method="GET", path="/v1/network-profiles", idempotent=True)
        return await self._transport.call_json(call, parse_list(parse_record(NetworkProfile)))

    async def usage(self) -> Usage:
        """Fetches the usage and the cost of your organization, or of the team of a limited key, up to now.

        Example:
            print((await client.usage()).total_cost_cents)
        """
        call = Call(method="GET", path="/v1/usage", idempotent=True)
        return await self._transport.call_json(call, parse_record(Usage))

    def history(
        self,
        *,
        status: str | None = None,
        labels: Mapping[str, str] | None = None,
        from_: datetime | None = None,
        to: datetime | None = None,
        image: str | None = None,
        limit: int | None = None,
    ) -> AsyncPagedList[HistoryEntry]:
        """Lists sandboxes that have ended, newest end first: from `from_` on and before `to`.

        Raises `ValueError` for a time without a time zone.

        Example:
            async for entry in client.history(labels={"job": "nightly"}):
                print(entry.id, entry.cost_cents)
        """
        require_limit(limit)
        query = build_query(
            {
                "status": status,
                "label": format_labels(labels),
                "from": format_time("from_", from_),
                "to": format_time("to", to),
                "image": image,
                "limit": to_page_items(limit),
            }
        )
        return AsyncPagedList(
            self._transport,
            path="/v1/runs/history",
            query=query,
            parse_page=parse_list(parse_record(HistoryEntry)),
            limit=limit,
        )

    async def statement(self, month: str) -> Statement:
        """Fetches what your organization owes for a month in UTC, with a line for each sandbox that ran in it.

        `month` has the form `2026-11`. The sums are those of the first page.

        Example:
            print((await client.statement("2026-11")).cost_cents)
        """
        path = f"/v1/statements/{encode_segment(month, 'the month')}"
        pages: list[Statement] = []

        def parse_lines(value: Any) -> list[StatementLine]:
            pages.append(_parse_statement(value))
            return pages[-1].lines

        query = build_query({"limit": _STATEMENT_PAGE_LINES})
        lines = AsyncPagedList(self._transport, path=path, query=query, parse_page=parse_lines)
        everything = await lines.all()
        if not pages:
            raise CoppiceError("the statement has no page", status=200, code="invalid_response")
        return replace(pages[0], lines=everything)
