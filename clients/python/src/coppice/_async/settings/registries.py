"""Credentials for private image registries."""

from __future__ import annotations

import builtins

from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, json_call
from coppice._core.paths import encode_segment
from coppice._core.records import parse_list, parse_record
from coppice.models import RegistryInfo

_parse_registry = parse_record(RegistryInfo)


class AsyncRegistries:
    """Your organization's credentials for private image registries. Available as `client.registries`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def set(self, registry: str, *, username: str, password: str) -> RegistryInfo:
        """Stores the credentials for a registry, or replaces them. Later creates and builds of its images use them.

        `registry` is `host` or `host:port`, or `docker.io` for image references without a registry.

        Example:
            await client.registries.set("ghcr.io", username="robot", password=os.environ["REGISTRY_TOKEN"])
        """
        body = {"username": username, "password": password}
        call = json_call("PUT", _registry_path(registry), body, idempotent=True)
        return await self._transport.call_json(call, _parse_registry)

    async def list(self) -> builtins.list[RegistryInfo]:
        """Lists the registries for which the service stores credentials. The list never includes passwords.

        Example:
            for registry in await client.registries.list():
                print(registry.registry, registry.username)
        """
        call = Call(method="GET", path="/v1/registries", idempotent=True)
        return await self._transport.call_json(call, parse_list(_parse_registry))

    async def delete(self, registry: str) -> None:
        """Deletes the credentials for a registry: the next create does not use them.

        Example:
            await client.registries.delete("ghcr.io")
        """
        await self._transport.call_empty(Call(method="DELETE", path=_registry_path(registry), idempotent=True))


def _registry_path(registry: str) -> str:
    return f"/v1/registries/{encode_segment(registry, 'the registry')}"
