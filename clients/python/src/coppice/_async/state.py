"""The part of a sandbox for its state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from coppice._async.creation import parse_sandbox
from coppice._async.egress import AsyncSandboxEgress
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, create_call, json_call
from coppice._core.paths import build_query, format_time, sandbox_path
from coppice._core.records import parse_record
from coppice._core.unset import UNSET, Unset, or_null
from coppice.errors import CoppiceError
from coppice.models import SandboxInfo, SandboxMetrics, SnapshotInfo


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
    def name(self) -> str | None:
        """Name of the sandbox in the record that the service sent last. None without one."""
        return self._record.name

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
        return await self.update(timeout=seconds)

    async def update(
        self,
        *,
        timeout: int | None = None,
        name: str | Unset | None = UNSET,
        labels: Mapping[str, str] | None = None,
        auto_hibernate: bool | None = None,
        max_lifetime: int | Unset | None = UNSET,
        expires_at: datetime | str | Unset | None = UNSET,
        env: Mapping[str, str] | None = None,
        cwd: str | Unset | None = UNSET,
    ) -> SandboxInfo:
        """Changes settings, all or none, and restarts the idle timer. Settings left out keep their values.

        `labels` and `env` replace all labels and variables. None removes the name, the limit of the lifetime or the
        end, or means the directory of the image. `env` and `cwd` are for processes that start from now on. A
        hibernated sandbox stays hibernated. Raises `CoppiceError` with code `already_exists` when another sandbox of
        the team has the name.

        Example:
            await sandbox.update(labels={"job": "nightly"}, max_lifetime=3600)
        """
        ends = expires_at if expires_at is UNSET else format_time("expires_at", expires_at)
        body = {
            "timeout": timeout,
            "name": or_null(name),
            "labels": labels,
            "auto_hibernate": auto_hibernate,
            "max_lifetime": or_null(max_lifetime),
            "expires_at": or_null(ends),
            "env": env,
            "cwd": or_null(cwd),
        }
        return await self._change(json_call("PATCH", self._path, body, idempotent=True))

    async def metrics(self, *, since: datetime | None = None, step: int | None = None) -> SandboxMetrics:
        """Measures the sandbox: CPU time, memory, disks and network, now and in the last hour.

        `since` leaves out points that end earlier; `step` is the seconds of each point, a multiple of 10. The numbers
        are the host's, apart from `guest_reported`. This is no use of the sandbox: its idle timer continues, and it is
        not resumed. Raises `CoppiceError` with code `invalid_state` when the sandbox has ended.

        Example:
            metrics = await sandbox.metrics(step=60)
            if metrics.now is not None:
                print(metrics.now.cpu.utilization, metrics.now.memory.host_bytes)
        """
        query = build_query({"since": format_time("since", since), "step": step})
        call = Call(method="GET", path=f"{self._path}/metrics", query=query, idempotent=True)
        return await self._transport.call_json(call, parse_record(SandboxMetrics))

    async def snapshot(
        self,
        *,
        name: str | None = None,
        expires_in: int | None = None,
        expires_at: datetime | str | None = None,
        idempotency_key: str | None = None,
    ) -> SnapshotInfo:
        """Saves the sandbox as a snapshot, which is kept until it expires or is deleted. The sandbox continues to run.

        `expires_in` is in seconds; `expires_at` is the time itself, in place of it. By default it never expires.

        Example:
            snapshot = await sandbox.snapshot(name="installed")
            copy = await client.sandboxes.restore(snapshot.id)
        """
        slow_s = self._transport.slow_timeout_s
        body = {"name": name, "expires_in": expires_in, "expires_at": format_time("expires_at", expires_at)}
        call = create_call(f"{self._path}/snapshot", body, key=idempotency_key, timeout_s=slow_s)
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
