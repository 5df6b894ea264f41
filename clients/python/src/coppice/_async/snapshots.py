"""Snapshots of the organization."""

from __future__ import annotations

from datetime import datetime

from coppice._async.paged_list import AsyncPagedList
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, json_call
from coppice._core.paths import build_query, encode_segment, format_time, require_limit, to_page_items
from coppice._core.records import parse_list, parse_record
from coppice._core.unset import UNSET, Unset, or_null
from coppice.models import SnapshotInfo

_parse_snapshot = parse_record(SnapshotInfo)


class AsyncSnapshots:
    """The snapshots of your organization. Available as `client.snapshots`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, run_id: str | None = None, limit: int | None = None) -> AsyncPagedList[SnapshotInfo]:
        """Lists snapshots, newest first; with `run_id`, those of one sandbox.

        Example:
            async for snapshot in client.snapshots.list():
                print(snapshot.id, snapshot.name, snapshot.size_bytes)
        """
        require_limit(limit)
        query = build_query({"run_id": run_id, "limit": to_page_items(limit)})
        return AsyncPagedList(
            self._transport,
            path="/v1/snapshots",
            query=query,
            parse_page=parse_list(_parse_snapshot),
            limit=limit,
        )

    async def get(self, snapshot_id: str) -> SnapshotInfo | None:
        """Finds a snapshot by its id. Returns None when there is none, or when it has expired.

        Example:
            snapshot = await client.snapshots.get("snap0123456789abcdef0123")
        """
        call = Call(method="GET", path=_snapshot_path(snapshot_id), idempotent=True)
        return await self._transport.find_json(call, _parse_snapshot)

    async def update(
        self,
        snapshot_id: str,
        *,
        name: str | Unset | None = UNSET,
        expires_at: datetime | str | Unset | None = UNSET,
    ) -> SnapshotInfo:
        """Changes the name of a snapshot, and when it expires. Options left out keep their values.

        `name=None` removes the name, and `expires_at=None` means never.

        Example:
            await client.snapshots.update(snapshot.id, name="installed", expires_at=None)
        """
        ends = expires_at if expires_at is UNSET else format_time("expires_at", expires_at)
        body = {"name": or_null(name), "expires_at": or_null(ends)}
        call = json_call("PATCH", _snapshot_path(snapshot_id), body, idempotent=True)
        return await self._transport.call_json(call, _parse_snapshot)

    async def delete(self, snapshot_id: str) -> None:
        """Deletes a snapshot. Sandboxes that were restored from it continue to run.

        Example:
            await client.snapshots.delete("snap0123456789abcdef0123")
        """
        call = Call(method="DELETE", path=_snapshot_path(snapshot_id), idempotent=True)
        await self._transport.call_empty(call)


def _snapshot_path(snapshot_id: str) -> str:
    return f"/v1/snapshots/{encode_segment(snapshot_id, 'the snapshot id')}"
