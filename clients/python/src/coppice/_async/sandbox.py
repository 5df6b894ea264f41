"""One sandbox."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import TracebackType

from coppice._async.creation import ENDED, call_once
from coppice._async.forks import AsyncForkError, parse_children
from coppice._async.runtime import shielded
from coppice._async.state import AsyncSandboxState
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, create_call
from coppice._core.frames import invalid_frame
from coppice._core.paths import build_query
from coppice._core.records import parse_record
from coppice.audit import AuditEntry, parse_audit_line
from coppice.errors import CoppiceError
from coppice.models import AuditHead, DestroyResult, SandboxInfo, SandboxTree

_LOGGER = logging.getLogger("coppice")
# In characters. An entry holds a command of at most 1 MiB, which JSON escapes make longer.
_MAX_AUDIT_LINE = 16 * 2**20
# The service sends an empty line every 15 s while there are no entries.
_FOLLOW_STALL_S = 60.0


class AsyncSandbox(AsyncSandboxState):
    """One microVM sandbox. The object holds the record that the service sent last; `refresh()` fetches it again.

    At the end of its block the sandbox is destroyed, unless it was created with `keep=True` or `detach()` was called.
    Calls raise `CoppiceError` when they fail.

    Example:
        async with await client.sandboxes.create(image="python:3.12-slim") as sandbox:
            print((await sandbox.exec("python --version")).stdout)
    """

    def __init__(self, transport: AsyncTransport, record: SandboxInfo, *, keep: bool = False) -> None:
        super().__init__(transport, record)
        self._keep = keep

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"

    def detach(self) -> AsyncSandbox:
        """Keeps the sandbox after the end of its block. Returns the sandbox.

        Example:
            async with await client.sandboxes.create() as sandbox:
                await sandbox.exec("./set-up")
                print(sandbox.detach().id)
        """
        self._keep = True
        return self

    async def refresh(self) -> AsyncSandbox:
        """Fetches the current record, as `info()` does, and returns the sandbox.

        Example:
            if (await sandbox.refresh()).status == "failed":
                print(sandbox.record.status_reason)
        """
        await self.info()
        return self

    async def fork(
        self, count: int = 1, *, disks: Sequence[str] | None = None, idempotency_key: str | None = None
    ) -> list[AsyncSandbox]:
        """Copies the running sandbox, with its memory, its processes and its files, into `count` new sandboxes (1-100).

        `disks` are the names of the children's disks, in their order, if the sandbox has a disk. Raises `ForkError`
        when only some of the copies could be created, and `CoppiceError` when none could. If the call is interrupted
        and has no `idempotency_key`, the copies are destroyed.

        Example:
            for seed, child in enumerate(await sandbox.fork(8)):
                await child.exec(f"./explore --seed {seed}")
        """
        path = f"{self._path}/fork"
        body = {"count": count, "disks": disks}
        call = create_call(path, body, key=idempotency_key, timeout_s=self._transport.slow_timeout_s)
        records, errors = await call_once(
            self._transport,
            call,
            lambda value: parse_children(value, count, call.label),
            lambda children: children[0],
            is_ours=idempotency_key is None,
        )
        children = [AsyncSandbox(self._transport, record) for record in records]
        if errors:
            raise AsyncForkError(children, errors)
        return children

    async def tree(self) -> SandboxTree:
        """Fetches the family of the sandbox: all that descend, by forks and snapshots, from the same root.

        Example:
            for node in (await sandbox.tree()).nodes:
                print(node.parent_id, node.id, node.status)
        """
        call = Call(method="GET", path=f"{self._path}/tree", idempotent=True)
        return await self._transport.call_json(call, parse_record(SandboxTree))

    async def audit(self, *, follow: bool = False, after: int | None = None) -> AsyncIterator[AuditEntry]:
        """Yields the entries of the audit log, which records every action on the sandbox, also after its end.

        With `follow`, new entries are yielded until the sandbox has ended. `after` is the `seq` after which it starts.
        `verify_audit` checks the chain.

        Example:
            async for entry in sandbox.audit():
                print(entry.ts, entry.event, entry.data)
        """
        call = Call(
            method="GET",
            path=f"{self._path}/audit",
            query=build_query({"follow": "true" if follow else None, "after": after}),
            idempotent=True,
            stall_s=max(_FOLLOW_STALL_S, self._transport.timeout_s) if follow else None,
        )
        async with await self._transport.call_stream(call) as stream:
            async for line in stream.lines(_MAX_AUDIT_LINE):
                if line:
                    yield _parse_audit_line(line, call.label)

    async def audit_head(self) -> AuditHead:
        """Fetches number and hash of the last entry of the audit log.

        Keep it outside the service: `verify_audit` then detects a log whose end was cut off before this entry.

        Example:
            head = await sandbox.audit_head()
        """
        call = Call(method="GET", path=f"{self._path}/audit", query="?head=true", idempotent=True)
        return await self._transport.call_json(call, parse_record(AuditHead))

    async def destroy(self) -> DestroyResult:
        """Destroys the sandbox and everything in it, and returns what it used.

        Raises `CoppiceError` with code `invalid_state` when the sandbox has already ended.

        Example:
            print((await sandbox.destroy()).cost_cents)
        """
        call = Call(method="DELETE", path=self._path, idempotent=True)
        result = await self._transport.call_json(call, parse_record(DestroyResult))
        self._record = replace(self._record, status=result.status)
        return result

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Destroys the sandbox, also when the block is cancelled. A sandbox that has already ended is not an error.

        After an exception in the block, a failure to destroy the sandbox is logged, not raised.
        """
        if self._keep:
            return
        try:
            await shielded(self._end)
        except CoppiceError as failure:
            # The error of the block counts. A cancellation or Ctrl-C must not turn into an error of this client.
            if error is None:
                raise
            _LOGGER.warning("sandbox %s was not destroyed: %s", self.id, failure)

    async def _end(self) -> None:
        if self.status in ENDED:
            return
        try:
            await self.destroy()
        except CoppiceError as error:
            if not await self._is_gone(error):
                raise

    async def _is_gone(self, error: CoppiceError) -> bool:
        """Returns true when the sandbox has ended. A 409 can also mean that another operation runs."""
        if error.status == 404:
            return True
        return error.status == 409 and (await self.info()).status in ENDED


def _parse_audit_line(line: str, label: str) -> AuditEntry:
    try:
        return parse_audit_line(line)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_frame(label, 200, error) from error
