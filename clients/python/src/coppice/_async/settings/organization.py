"""The organization of the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator

from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.frames import invalid_frame
from coppice._core.paths import build_query
from coppice._core.records import parse_record
from coppice.models import AuditHead
from coppice.organization_audit import OrganizationAuditEntry, parse_organization_audit_line

_PATH = "/v1/organization/audit"
# Characters. An entry has some hundred.
_MAX_LINE = 2**20


class AsyncOrganization:
    """Your organization. Available as `client.organization`.

    Calls raise `CoppiceError` with code `forbidden` for a key with the scope `read` or limited to its team.
    """

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def audit(
        self, *, after: int | None = None, event: str | None = None, actor: str | None = None
    ) -> AsyncIterator[OrganizationAuditEntry]:
        """Yields the entries of the audit log of the organization.

        They are changes of keys, members, teams, secrets, webhooks, registries, budgets, limits and credit, and
        sign-ins. `verify_organization_audit` checks the chain. `after` is the `seq` after which it starts. `event`
        chooses the entries of one event, `actor` those that the person or API key with this id caused: such entries
        cannot be verified, as others are missing.

        Example:
            async for entry in client.organization.audit():
                print(entry.ts, entry.event, entry.actor)
        """
        query = build_query({"after": after, "event": event, "actor": actor})
        call = Call(method="GET", path=_PATH, query=query, idempotent=True)
        async with await self._transport.call_stream(call) as stream:
            async for line in stream.lines(_MAX_LINE):
                if line:
                    yield _parse_line(line, call.label)

    async def audit_head(self) -> AuditHead:
        """Fetches number and hash of the last entry of the audit log.

        Keep it elsewhere: `verify_organization_audit` then detects a log whose end was cut off before this entry.

        Example:
            head = await client.organization.audit_head()
        """
        call = Call(method="GET", path=_PATH, query="?head=true", idempotent=True)
        return await self._transport.call_json(call, parse_record(AuditHead))


def _parse_line(line: str, label: str) -> OrganizationAuditEntry:
    try:
        return parse_organization_audit_line(line)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_frame(label, 200, error) from error
