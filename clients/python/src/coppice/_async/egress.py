"""The part of a sandbox for its outbound network."""

from __future__ import annotations

from collections.abc import Mapping

from coppice._async.guest import AsyncSandboxGuest
from coppice._core.call import Call, json_call
from coppice._core.records import parse_list, parse_record
from coppice.models import CredentialInfo, CredentialWithRules, NetworkInfo, NetworkRules, SecretReference

_parse_network = parse_record(NetworkInfo)
_parse_credentials = parse_list(parse_record(CredentialInfo))


class AsyncSandboxEgress(AsyncSandboxGuest):
    """The network policy of a sandbox, and the secrets that the host adds to its requests."""

    async def network(self) -> NetworkInfo:
        """Fetches the network policy in force, and counters of the allowed and refused traffic.

        Example:
            print((await sandbox.network()).counters)
        """
        call = Call(method="GET", path=f"{self._path}/network", idempotent=True)
        return await self._transport.call_json(call, _parse_network)

    async def set_network(self, network: NetworkRules | str) -> NetworkInfo:
        """Replaces the network policy with the given rules, or with the profile of the given name.

        The policy is in force when the call returns and also ends open connections that it refuses. For a hibernated
        sandbox it is in force from the resume. If the call fails, the previous policy stays in force.

        Example:
            await sandbox.set_network({"allow": ["api.example.com", "*.example.org"]})
            await sandbox.set_network("locked-down")
        """
        body = {"network_profile": network} if isinstance(network, str) else {"network": network}
        call = json_call("PUT", f"{self._path}/network", body, idempotent=True)
        return await self._transport.call_json(call, _parse_network)

    async def credentials(self) -> list[CredentialInfo]:
        """Lists the services whose requests the host signs with a credential. The list never includes secrets.

        Example:
            for credential in await sandbox.credentials():
                print(credential.service, credential.updated_at)
        """
        call = Call(method="GET", path=f"{self._path}/credentials", idempotent=True)
        return await self._transport.call_json(call, _parse_credentials)

    async def set_credentials(
        self,
        *,
        credentials: Mapping[str, str | SecretReference] | None = None,
        credentials_v2: Mapping[str, CredentialWithRules] | None = None,
    ) -> list[CredentialInfo]:
        """Replaces all credentials of the sandbox: the named ones are granted, all others are revoked.

        `credentials` are secrets by service, or `{"secret": name}` for one of `client.secrets`. Those of
        `credentials_v2` sign only the requests that their rules allow.

        Example:
            await sandbox.set_credentials(credentials={"openai": os.environ["OPENAI_API_KEY"]})
        """
        body = {"credentials": credentials, "credentials_v2": credentials_v2}
        call = json_call("PUT", f"{self._path}/credentials", body, idempotent=True)
        return await self._transport.call_json(call, _parse_credentials)
