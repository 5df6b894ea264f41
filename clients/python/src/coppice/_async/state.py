"""The part of a sandbox for its state."""

from __future__ import annotations

from typing import Literal

from coppice._async.creation import parse_sandbox
from coppice._async.egress import AsyncSandboxEgress
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, create_call, json_call
from coppice._core.paths import build_query, sandbox_path
from coppice._core.records import parse_record
from coppice.errors import CoppiceError
from coppice.models import SandboxInfo, SnapshotInfo


class AsyncSandboxState(AsyncSandboxEgress):
    """The record of a sandbox, and the calls that change or save its state."""

    def __init__(self, transport: AsyncTransport, record: SandboxInfo) -> None:
        super().__init__(transport, sandbox_path(record.id))
        self._record = record

    @property
    def id(self) -> str:
        """Id of the sandbox, for example `run0123456789abcdef0123`."""
        return self._record.id

    @property
    def status(self) -> str:
        """State of the sandbox in the record that the service sent last."""
        return self._record.status

    @property
    def record(self) -> SandboxInfo:
        """The record that the service sent last."""
        return self._record

    async def info(self) -> SandboxInfo:
        """Fetches the current record and stores it in `record`. A destroyed sandbox still has a record.

        Example:
            info = await sandbox.info()
            print(info.status, info.expires_at)
        """
        return await self._change(Call(method="GET", path=self._path, idempotent=True))

    async def set_timeout(self, seconds: int) -> SandboxInfo:
        """Sets the idle timeout in seconds (0-2,592,000) and restarts the idle timer.

        When the timer expires, the service destroys the sandbox, or hibernates it if it has `auto_hibernate`. 0 turns
        the timer off.

        Example:
            await sandbox.set_timeout(3600)
        """
        return await self._change(json_call("PATCH", self._path, {"timeout": seconds}, idempotent=True))

    async def snapshot(self, *, name: str | None = None, idempotency_key: str | None = None) -> SnapshotInfo:
        """Saves the sandbox as a snapshot, which is kept until it is deleted. The sandbox continues to run.

        Example:
            snapshot = await sandbox.snapshot(name="installed")
            copy = await client.sandboxes.restore(snapshot.id)
        """
        slow_s = self._transport.slow_timeout_s
        call = create_call(f"{self._path}/snapshot", {"name": name}, key=idempotency_key, timeout_s=slow_s)
        return await self._transport.call_json(call, parse_record(SnapshotInfo))

    async def rollback(self, snapshot_id: str, *, idempotency_key: str | None = None) -> SandboxInfo:
        """Returns the sandbox, under the same id, to a snapshot of itself or of an ancestor of the same size.

        All changes since that snapshot are lost, and open connections end. If the rollback fails, the sandbox continues
        to run unchanged. After `outcome_unknown`, repeat the call with the same `idempotency_key` to get the result.

        Example:
            snapshot = await sandbox.snapshot()
            await sandbox.exec("rm -rf /workspace")
            await sandbox.rollback(snapshot.id)
        """
        body = {"snapshot_id": snapshot_id}
        slow_s = self._transport.slow_timeout_s
        return await self._change(create_call(f"{self._path}/rollback", body, key=idempotency_key, timeout_s=slow_s))

    async def hibernate(self) -> SandboxInfo:
        """Saves the sandbox to disk and releases its memory and processors. It costs nothing until `resume()`.

        Example:
            await sandbox.hibernate()
        """
        return await self._change_state("hibernate", "hibernated", "")

    async def resume(self, *, disk: Literal["fresh"] | None = None) -> SandboxInfo:
        """Resumes a hibernated sandbox with its memory, its processes and their listening ports.

        With `disk="fresh"` the disk of the sandbox is mounted as it is now: for a sandbox whose disk has changed since
        the hibernation (code `disk_changed`).

        Example:
            await sandbox.resume()
        """
        return await self._change_state("resume", "running", build_query({"disk": disk}))

    async def _change_state(self, change: str, after: str, query: str) -> SandboxInfo:
        """Hibernates or resumes.

        An earlier attempt may have succeeded although the service answered 503. The service then refuses the retry with
        409 because the sandbox already has the requested state. This counts as success.
        """
        retries: list[bool] = []
        call = Call(
            method="POST",
            path=f"{self._path}/{change}",
            query=query,
            idempotent=True,
            timeout_s=self._transport.slow_timeout_s,
            on_retry=lambda: retries.append(True),
        )
        try:
            return await self._change(call)
        except CoppiceError as error:
            if retries and error.status == 409 and (await self.info()).status == after:
                return self._record
            raise

    async def _change(self, call: Call) -> SandboxInfo:
        self._record = await self._transport.call_json(call, parse_sandbox)
        return self._record
