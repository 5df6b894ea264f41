"""Finds a sandbox by its name, or creates it.

The service decides between concurrent callers: a name belongs to one sandbox of a team, so all creates but one are
refused.

create ──► 201: done
   ▲  └──► 409 already_exists ──► list by name ──► running: done
   │                                  │      └───► hibernated: resume, then done
   │                                  │      └───► in a change: wait
   └──────── it has ended ◄───────────┘

The create comes first: a key may see sandboxes of other teams with the same name, but only the service knows the team
of the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coppice._async.creation import ENDED, parse_sandbox
from coppice._async.runtime import sleep
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, Deadline, create_call
from coppice._core.paths import build_query, sandbox_path
from coppice._core.records import parse_list
from coppice.errors import CoppiceError
from coppice.models import SandboxInfo

_PATH = "/v1/runs"
# A name can be taken by something else than a live sandbox, such as the new disk of `fork_from_disk`.
_MAX_CREATES = 5
# Before each attempt; the last one is that of all later attempts.
_PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6, 2.0)
# Operations after which the sandbox is in another state.
_CHANGES = frozenset({"hibernating", "resuming", "destroying"})


async def get_or_create_sandbox(transport: AsyncTransport, body: Mapping[str, Any], team: str | None) -> SandboxInfo:
    """Returns the record of a sandbox that runs. `body` is that of a create."""
    if not isinstance(body["name"], str):
        raise TypeError("get_or_create: name must be a text of 1-64 characters")
    return await _Search(transport, body, team).ensure_running()


class _Search:
    """One call. Its deadline is that of all its requests and pauses."""

    def __init__(self, transport: AsyncTransport, body: Mapping[str, Any], team: str | None) -> None:
        self._transport = transport
        self._body = body
        self._team = team
        self._deadline = Deadline(f"POST {_PATH}", transport.slow_timeout_s)

    async def ensure_running(self) -> SandboxInfo:
        creates = 0
        while True:
            outcome = await self._try_create()
            if isinstance(outcome, SandboxInfo):
                return outcome
            found = await self._find()
            running = None if found is None else await self._await_running(found)
            if running is not None:
                return running
            # The sandbox has ended between the two requests.
            creates += 1
            if creates == _MAX_CREATES:
                raise outcome
            await self._pause(creates)

    async def _try_create(self) -> SandboxInfo | CoppiceError:
        """Returns the error when the name is taken.

        Unlike `create`, an interrupted call does not destroy the sandbox: another caller may have found it, and the
        next call finds it.
        """
        call = create_call(_PATH, self._body, key=None, timeout_s=self._deadline.require())
        try:
            return await self._transport.call_json(call, parse_sandbox)
        except CoppiceError as error:
            if error.code != "already_exists":
                raise
            return error

    async def _find(self) -> SandboxInfo | None:
        name = self._body["name"]
        query = build_query({"name": name, "team": self._team, "limit": 2})
        call = Call(method="GET", path=_PATH, query=query, idempotent=True, timeout_s=self._read_timeout_s())
        records = await self._transport.call_json(call, parse_list(parse_sandbox))
        if len(records) > 1:
            raise CoppiceError(
                f"get_or_create: sandboxes of several teams are called {json.dumps(name)}; "
                "pass the team of your API key",
                status=0,
                code="ambiguous_name",
            )
        return records[0] if records else None

    async def _await_running(self, record: SandboxInfo) -> SandboxInfo | None:
        """Waits until a sandbox runs, and resumes it if it is hibernated. Returns None when it has ended."""
        path = sandbox_path(record.id)
        polls = 0
        while record.status not in ENDED:
            is_changing = record.status == "creating" or record.operation in _CHANGES
            if not is_changing and record.status == "running":
                return record
            resumed = None if is_changing else await self._try_resume(path)
            if resumed is not None:
                return resumed
            polls += 1
            await self._pause(polls)
            call = Call(method="GET", path=path, idempotent=True, timeout_s=self._read_timeout_s())
            record = await self._transport.call_json(call, parse_sandbox)
        return None

    async def _try_resume(self, path: str) -> SandboxInfo | None:
        """Returns None when another caller, or an attempt without an answer, has changed the state of the sandbox."""
        timeout_s = self._deadline.require()
        call = Call(method="POST", path=f"{path}/resume", idempotent=True, timeout_s=timeout_s)
        try:
            return await self._transport.call_json(call, parse_sandbox)
        except CoppiceError as error:
            if error.code != "invalid_state":
                raise
            return None

    async def _pause(self, count: int) -> None:
        await sleep(min(self._deadline.require(), _PAUSES_S[min(count, len(_PAUSES_S)) - 1]))

    def _read_timeout_s(self) -> float:
        return min(self._transport.timeout_s, self._deadline.require())
