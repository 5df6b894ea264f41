"""Creation and lists of sandboxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from coppice._async.creation import create_sandbox, parse_sandbox
from coppice._async.get_or_create import get_or_create_sandbox
from coppice._async.paged_list import AsyncPagedList
from coppice._async.sandbox import AsyncSandbox
from coppice._async.transport import AsyncTransport
from coppice._core.call import Call
from coppice._core.paths import build_query, format_labels, format_time, require_limit, sandbox_path, to_page_items
from coppice._core.records import parse_list
from coppice._core.unset import UNSET, Unset, or_null
from coppice.models import CredentialWithRules, NetworkRules, SecretReference

DEFAULT_IMAGE = "node:22-slim"


class AsyncSandboxes:
    """The sandboxes visible to your API key. Available as `client.sandboxes`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        *,
        image: str = DEFAULT_IMAGE,
        name: str | None = None,
        vcpus: int | None = None,
        mem_mib: int | None = None,
        disk_mib: int | None = None,
        timeout: int | None = None,
        labels: Mapping[str, str] | None = None,
        max_lifetime: int | None = None,
        expires_at: datetime | str | None = None,
        auto_hibernate: bool | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        network: NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Mapping[str, str | SecretReference] | None = None,
        credentials_v2: Mapping[str, CredentialWithRules] | None = None,
        disk: str | None = None,
        fork_from_disk: str | None = None,
        disk_snapshot: str | None = None,
        keep: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncSandbox:
        """Creates a sandbox and returns when it can run a command. The service has defaults for settings left out.

        - `image`: pinned OCI image reference; without a tag, or with `latest`, it is refused
        - `name`: 1-64 characters, which no other sandbox of the team may have until this one ends
        - `vcpus` (1), `mem_mib` (1024), `disk_mib` (4096): its shape
        - `timeout` (300): idle seconds after which it is destroyed, or hibernated with `auto_hibernate`; 0 means never
        - `max_lifetime`: seconds after which it is destroyed even if it is in use
        - `expires_at`: time at which it is destroyed even if it is in use; a text is ISO 8601 with its offset
        - `env`: environment variables of its processes, which the service stores encrypted and never returns
        - `cwd`: where its processes and relative paths of files start
        - `network` or `network_profile`: what it may connect to
        - `credentials`, `credentials_v2`: secrets by service, which the host adds to its requests; in place of a
          secret, `{"secret": name}` refers to one of `client.secrets`
        - `disk`: persistent disk at `/workspace`; with `fork_from_disk` and `disk_snapshot`, name of the new disk
        - `keep`: the end of a block does not destroy it
        - `idempotency_key`: for 24 hours the service carries out calls with the same key only once

        If the call is interrupted and has no `idempotency_key`, the sandbox is destroyed. Raises `CoppiceError`, for
        example with code `image_not_found` or `capacity`.

        Example:
            sandbox = await client.sandboxes.create(image="python:3.12-slim", vcpus=2, mem_mib=2048)
        """
        body = {
            "image": image,
            "name": name,
            "vcpus": vcpus,
            "mem_mib": mem_mib,
            "disk_mib": disk_mib,
            "timeout": timeout,
            "labels": labels,
            "max_lifetime": max_lifetime,
            "expires_at": format_time("expires_at", expires_at),
            "auto_hibernate": auto_hibernate,
            "env": env,
            "cwd": cwd,
            "network": network,
            "network_profile": network_profile,
            "credentials": credentials,
            "credentials_v2": credentials_v2,
            "disk": disk,
            "fork_from_disk": fork_from_disk,
            "disk_snapshot": disk_snapshot,
        }
        record = await create_sandbox(self._transport, "/v1/runs", body, idempotency_key)
        return AsyncSandbox(self._transport, record, keep=keep)

    async def get_or_create(
        self,
        name: str,
        *,
        team: str | None = None,
        image: str = DEFAULT_IMAGE,
        vcpus: int | None = None,
        mem_mib: int | None = None,
        disk_mib: int | None = None,
        timeout: int | None = None,
        labels: Mapping[str, str] | None = None,
        max_lifetime: int | None = None,
        expires_at: datetime | str | None = None,
        auto_hibernate: bool | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        network: NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Mapping[str, str | SecretReference] | None = None,
        credentials_v2: Mapping[str, CredentialWithRules] | None = None,
        disk: str | None = None,
        fork_from_disk: str | None = None,
        disk_snapshot: str | None = None,
        keep: bool = False,
    ) -> AsyncSandbox:
        """Finds the sandbox of your team with this name, or creates it, and returns when it can run a command.

        Of several concurrent calls one creates the sandbox, and all return the same one. A hibernated sandbox is
        resumed. An existing sandbox is not changed: the other options are those of `create`, and apply only if the
        sandbox is created.

        `team` is the id or name of the team of the API key. It is needed only if the key sees sandboxes of other teams
        with the same name: the call then raises `CoppiceError` with code `ambiguous_name`. Other errors are those of
        `create` and `resume`.

        The end of a block destroys the sandbox also if it was found; `keep=True` keeps it. An interrupted call does not
        destroy the sandbox, because other callers may use it.

        Example:
            sandbox = await client.sandboxes.get_or_create("alice", image="python:3.12-slim", auto_hibernate=True)
        """
        body = {
            "image": image,
            "name": name,
            "vcpus": vcpus,
            "mem_mib": mem_mib,
            "disk_mib": disk_mib,
            "timeout": timeout,
            "labels": labels,
            "max_lifetime": max_lifetime,
            "expires_at": format_time("expires_at", expires_at),
            "auto_hibernate": auto_hibernate,
            "env": env,
            "cwd": cwd,
            "network": network,
            "network_profile": network_profile,
            "credentials": credentials,
            "credentials_v2": credentials_v2,
            "disk": disk,
            "fork_from_disk": fork_from_disk,
            "disk_snapshot": disk_snapshot,
        }
        record = await get_or_create_sandbox(self._transport, body, team)
        return AsyncSandbox(self._transport, record, keep=keep)

    async def restore(
        self,
        snapshot_id: str,
        *,
        name: str | None = None,
        timeout: int | None = None,
        labels: Mapping[str, str] | None = None,
        max_lifetime: int | Unset | None = UNSET,
        expires_at: datetime | str | None = None,
        auto_hibernate: bool | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Unset | None = UNSET,
        network: NetworkRules | None = None,
        network_profile: str | None = None,
        credentials: Mapping[str, str | SecretReference] | None = None,
        credentials_v2: Mapping[str, CredentialWithRules] | None = None,
        disk: str | None = None,
        keep: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncSandbox:
        """Creates a sandbox from a snapshot and returns when it can run a command.

        It has the memory, the processes and the files of the snapshot. A setting left out has the value of the
        snapshot's sandbox, except name, end and credentials. `max_lifetime=None` means no limit, and `cwd=None` the
        directory of the image. `disk` is the name of the new disk, if the snapshot's sandbox had a disk.

        Example:
            sandbox = await client.sandboxes.restore(snapshot.id, timeout=600)
        """
        body = {
            "snapshot_id": snapshot_id,
            "name": name,
            "timeout": timeout,
            "labels": labels,
            "max_lifetime": or_null(max_lifetime),
            "expires_at": format_time("expires_at", expires_at),
            "auto_hibernate": auto_hibernate,
            "env": env,
            "cwd": or_null(cwd),
            "network": network,
            "network_profile": network_profile,
            "credentials": credentials,
            "credentials_v2": credentials_v2,
            "disk": disk,
        }
        record = await create_sandbox(self._transport, "/v1/runs/restore", body, idempotency_key)
        return AsyncSandbox(self._transport, record, keep=keep)

    async def get(self, sandbox_id: str) -> AsyncSandbox | None:
        """Finds a sandbox by its id. Returns None when there is none; a destroyed sandbox is still found.

        Example:
            sandbox = await client.sandboxes.get("run0123456789abcdef0123")
        """
        call = Call(method="GET", path=sandbox_path(sandbox_id), idempotent=True)
        return await self._transport.find_json(call, self._parse)

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        team: str | None = None,
        limit: int | None = None,
    ) -> AsyncPagedList[AsyncSandbox]:
        """Lists sandboxes, newest first: by default all that have not ended. Those listed have the name and all
        the labels.

        `limit` is the maximum number over all pages.

        Example:
            async for sandbox in client.sandboxes.list(labels={"job": "nightly"}):
                await sandbox.destroy()
        """
        require_limit(limit)
        query = build_query(
            {
                "status": status,
                "name": name,
                "label": format_labels(labels),
                "team": team,
                "limit": to_page_items(limit),
            }
        )
        return AsyncPagedList(
            self._transport, path="/v1/runs", query=query, parse_page=parse_list(self._parse), limit=limit
        )

    def _parse(self, value: Any) -> AsyncSandbox:
        return AsyncSandbox(self._transport, parse_sandbox(value))
