"""Lists of snapshots."""

from __future__ import annotations

from coppice._async.paged_list import AsyncPagedList
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.paths import build_query, encode_segment, require_limit, to_page_items
from coppice._core.records import parse_list, parse_record
from coppice.models import SnapshotInfo


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
            parse_page=parse_list(parse_record(SnapshotInfo)),
            limit=limit,
        )

    async def delete(self, snapshot_id: str) -> None:
        """Deletes a snapshot. Sandboxes that were restored from it continue to run.

        Example:
            await client.snapshots.delete("snap0123456789abcdef0123")
        """
        path = f"/v1/snapshots/{encode_segment(snapshot_id, 'the snapshot id')}"
        await self._transport.call_empty(Call(method="DELETE", path=path, idempotent=True))
