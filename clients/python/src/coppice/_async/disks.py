"""Persistent disks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from coppice._async.byte_stream import AsyncByteStream
from coppice._async.paged_list import AsyncPagedList
from coppice._async.runtime import Content
from coppice._async.transport import AsyncTransport
from coppice._async.upload import send_content
from coppice._core.call import Call, create_call, json_call
from coppice._core.paths import build_query, disk_path, encode_segment, require_limit, to_page_items
from coppice._core.records import parse_list, parse_record
from coppice.models import DiskInfo, DiskSnapshotInfo

DiskImageFormat = Literal["raw", "qcow2"]

_DISKS = "/v1/disks"
_parse_disk = parse_record(DiskInfo)
_parse_snapshot = parse_record(DiskSnapshotInfo)


class AsyncDisks:
    """The part of the client for persistent disks, which outlive sandboxes."""

    _transport: AsyncTransport

    async def create_disk(self, *, name: str, size_gb: int, idempotency_key: str | None = None) -> DiskInfo:
        """Creates a persistent disk with an empty file system.

        Raises `CoppiceError` with code `already_exists` when the name is taken, and `capacity` beyond the limits of
        your organization.

        Example:
            await client.create_disk(name="data", size_gb=20)
            sandbox = await client.sandboxes.create(disk="data")
        """
        return await self._create(_DISKS, {"name": name, "size_gb": size_gb}, idempotency_key)

    async def get_disk(self, name: str) -> DiskInfo | None:
        """Fetches a disk. Returns None when there is none.

        Example:
            disk = await client.get_disk("data")
        """
        call = Call(method="GET", path=disk_path(name), idempotent=True)
        return await self._transport.find_json(call, _parse_disk)

    def list_disks(self, *, limit: int | None = None) -> AsyncPagedList[DiskInfo]:
        """Lists disks, newest first, as the service last saw them.

        Example:
            async for disk in client.list_disks():
                print(disk.name, disk.stored_bytes)
        """
        require_limit(limit)
        query = build_query({"limit": to_page_items(limit)})
        return AsyncPagedList(
            self._transport, path=_DISKS, query=query, parse_page=parse_list(_parse_disk), limit=limit
        )

    async def grow_disk(self, name: str, size_gb: int) -> DiskInfo:
        """Grows a disk, also while a sandbox uses it.

        Example:
            await client.grow_disk("data", 40)
        """
        slow_s = self._transport.slow_timeout_s
        return await self._call(
            json_call("PATCH", disk_path(name), {"size_gb": size_gb}, idempotent=True, timeout_s=slow_s)
        )

    async def flush_disk(self, name: str) -> DiskInfo:
        """Waits until everything that was written to a disk before is in the object store.

        Example:
            print((await client.flush_disk("data")).drained_version)
        """
        slow_s = self._transport.slow_timeout_s
        return await self._call(Call(method="POST", path=f"{disk_path(name)}/flush", idempotent=True, timeout_s=slow_s))

    async def delete_disk(self, name: str) -> None:
        """Deletes a disk with its data and its snapshots.

        Raises `CoppiceError` with code `disk_in_use` while a sandbox has it, and `disk_has_forks` while disks that were
        forked from it exist.

        Example:
            await client.delete_disk("data")
        """
        await self._transport.call_empty(Call(method="DELETE", path=disk_path(name), idempotent=True))

    async def snapshot_disk(
        self, disk: str, *, name: str, sync: bool | None = None, idempotency_key: str | None = None
    ) -> DiskSnapshotInfo:
        """Takes a snapshot of a disk, also while a sandbox uses it. With `sync`, the file system is written out first.

        Example:
            await client.snapshot_disk("data", name="clean", sync=True)
        """
        path = f"{disk_path(disk)}/snapshots"
        body = {"name": name, "sync": sync}
        call = create_call(path, body, key=idempotency_key, timeout_s=self._transport.slow_timeout_s)
        return await self._transport.call_json(call, _parse_snapshot)

    def list_disk_snapshots(self, disk: str, *, limit: int | None = None) -> AsyncPagedList[DiskSnapshotInfo]:
        """Lists the snapshots of a disk, newest first.

        Example:
            async for snapshot in client.list_disk_snapshots("data"):
                print(snapshot.name, snapshot.created_at)
        """
        require_limit(limit)
        path = f"{disk_path(disk)}/snapshots"
        query = build_query({"limit": to_page_items(limit)})
        return AsyncPagedList(
            self._transport, path=path, query=query, parse_page=parse_list(_parse_snapshot), limit=limit
        )

    async def delete_disk_snapshot(self, disk: str, snapshot: str) -> None:
        """Deletes a snapshot of a disk. Disks that were forked from it are not affected.

        Example:
            await client.delete_disk_snapshot("data", "clean")
        """
        path = f"{disk_path(disk)}/snapshots/{encode_segment(snapshot, 'the name of the snapshot')}"
        await self._transport.call_empty(Call(method="DELETE", path=path, idempotent=True))

    async def fork_disk(self, disk: str, *, snapshot: str, name: str, idempotency_key: str | None = None) -> DiskInfo:
        """Makes a new, independent disk from a snapshot of a disk.

        Example:
            await client.fork_disk("data", snapshot="clean", name="data-copy")
        """
        body = {"snapshot": snapshot, "name": name}
        return await self._create(f"{disk_path(disk)}/fork", body, idempotency_key)

    async def import_disk(self, name: str, content: Content, *, format: DiskImageFormat | None = None) -> DiskInfo:
        """Makes a new disk from a disk image with an ext4 file system. The call is not retried.

        Example:
            with open("data.qcow2", "rb") as image:
                await client.import_disk("data", image, format="qcow2")
        """
        call = Call(
            method="PUT",
            path=f"{disk_path(name)}/content",
            query=build_query({"format": format}),
            # A second attempt would find the disk that the first one has made.
            idempotent=False,
            timeout_s=self._transport.slow_timeout_s,
        )
        return await send_content(self._transport, call, content, _parse_disk)

    async def export_disk(
        self, name: str, *, format: DiskImageFormat | None = None, snapshot: str | None = None
    ) -> AsyncByteStream:
        """Reads a disk, as it is in the object store, as a disk image.

        Example:
            async with await client.export_disk("data", snapshot="clean") as image:
                async for chunk in image:
                    file.write(chunk)
        """
        query = build_query({"format": format, "snapshot": snapshot})
        call = Call(method="GET", path=f"{disk_path(name)}/content", query=query, idempotent=True)
        return await self._transport.call_stream(call)

    async def _create(self, path: str, body: Mapping[str, object], key: str | None) -> DiskInfo:
        return await self._call(create_call(path, body, key=key, timeout_s=self._transport.slow_timeout_s))

    async def _call(self, call: Call) -> DiskInfo:
        return await self._transport.call_json(call, _parse_disk)
