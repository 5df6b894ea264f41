"""Named secrets of the organization."""

from __future__ import annotations

import builtins

from coppice._async.transport import AsyncTransport
from coppice._core.call import Call, json_call
from coppice._core.paths import encode_segment
from coppice._core.records import parse_list, parse_record
from coppice.models import SecretInfo

_parse_secret = parse_record(SecretInfo)


class AsyncSecrets:
    """The named secrets of your organization, which credentials refer to. Available as `client.secrets`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def set(self, name: str, value: str) -> SecretInfo:
        """Stores a secret, or replaces its value.

        Running sandboxes whose credentials name it use the new value from their next request on, hibernated ones from
        their resume. The name has 1-40 of a-z, 0-9, `-` and `_`. Raises `TypeError` for a value that is not a text.

        Example:
            await client.secrets.set("openai-production", os.environ["OPENAI_API_KEY"])
            await client.sandboxes.create(credentials={"openai": {"secret": "openai-production"}})
        """
        if not isinstance(value, str):
            # The message has no value, which may be the secret in another form.
            raise TypeError(f"the value of a secret must be a text, not of type {type(value).__name__}")
        call = json_call("PUT", _secret_path(name), {"value": value}, idempotent=True)
        return await self._transport.call_json(call, _parse_secret)

    async def list(self) -> builtins.list[SecretInfo]:
        """Lists the secrets of the organization, sorted by name. The list never includes values.

        Example:
            for secret in await client.secrets.list():
                print(secret.name, secret.version)
        """
        call = Call(method="GET", path="/v1/secrets", idempotent=True)
        return await self._transport.call_json(call, parse_list(_parse_secret))

    async def get(self, name: str) -> SecretInfo:
        """Gets a secret without its value. Raises `CoppiceError` with code `not_found` when there is none.

        Example:
            print((await client.secrets.get("openai-production")).outdated_sandboxes)
        """
        call = Call(method="GET", path=_secret_path(name), idempotent=True)
        return await self._transport.call_json(call, _parse_secret)

    async def delete(self, name: str) -> None:
        """Deletes a secret.

        Raises `CoppiceError` with code `secret_in_use` while the credentials of a sandbox name it, and with `not_found`
        when there is none.

        Example:
            await client.secrets.delete("openai-production")
        """
        await self._transport.call_empty(Call(method="DELETE", path=_secret_path(name), idempotent=True))


def _secret_path(name: str) -> str:
    return f"/v1/secrets/{encode_segment(name, 'the name of the secret')}"
