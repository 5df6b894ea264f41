"""Named secrets, and credentials that refer to them."""

from __future__ import annotations

import pytest

from coppice import CoppiceError
from loopback import SANDBOX_ID, LoopbackServer, wire_record

VALUE = "sk-secret-value"
WIRE = {
    "name": "openai",
    "version": 2,
    "sandboxes": 3,
    "outdated_sandboxes": 1,
    "created_at": "2026-11-21T06:30:00.000Z",
    "updated_at": "2026-11-22T06:30:00.000Z",
}


async def test_a_secret_is_stored_listed_read_and_deleted(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.answer_json(WIRE)
        stored = await client.secrets.set("openai", VALUE)
        assert server.last.json == {"value": VALUE}
        assert (stored.version, stored.sandboxes, stored.outdated_sandboxes) == (2, 3, 1)
        assert await client.secrets.get("openai") == stored
        server.answer_json([WIRE])
        assert await client.secrets.list() == [stored]
        server.on_request(lambda _, reply: reply.begin(204, {}))
        await client.secrets.delete("openai")
    assert server.lines == [
        "PUT /v1/secrets/openai",
        "GET /v1/secrets/openai",
        "GET /v1/secrets",
        "DELETE /v1/secrets/openai",
    ]


async def test_a_missing_secret_and_one_in_use_are_errors_of_the_service(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        for status, code in ((404, "not_found"), (409, "secret_in_use")):
            server.on_request(lambda _, reply, status=status, code=code: reply.error(status, code))  # type: ignore[misc]
            with pytest.raises(CoppiceError) as caught:
                await (client.secrets.get("openai") if status == 404 else client.secrets.delete("openai"))
            assert caught.value.code == code


async def test_an_invalid_name_or_value_is_refused_without_a_request_and_not_shown(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        with pytest.raises(ValueError, match="name of the secret"):
            await client.secrets.set("", VALUE)
        with pytest.raises(TypeError, match="must be a text, not of type bytes") as caught:
            await client.secrets.set("openai", VALUE.encode())  # type: ignore[arg-type]
        assert VALUE not in str(caught.value)
        with pytest.raises(TypeError):
            await client.secrets.set("openai", None)  # type: ignore[arg-type]
    assert server.seen == []


async def test_an_error_of_a_set_does_not_show_the_value(server: LoopbackServer) -> None:
    async with server.async_client() as client:
        server.on_request(lambda _, reply: reply.error(400, "invalid_request"))
        with pytest.raises(CoppiceError) as caught:
            await client.secrets.set("openai", VALUE)
    assert VALUE not in f"{caught.value!r} {caught.value.detail}"


async def test_credentials_name_secrets(server: LoopbackServer) -> None:
    named = {"key": {"secret": "github"}, "endpoints": [{"methods": ["GET"], "paths": []}]}
    async with server.async_client() as client:
        server.answer_json(wire_record(), 201)
        sandbox = await client.sandboxes.create(
            credentials={"openai": {"secret": "openai"}, "google": "key"},
            credentials_v2={"github": {"key": {"secret": "github"}, "endpoints": [{"methods": ["GET"], "paths": []}]}},
        )
        assert server.last.json["credentials"] == {"openai": {"secret": "openai"}, "google": "key"}
        assert server.last.json["credentials_v2"] == {"github": named}
        times = {"updated_at": WIRE["updated_at"]}
        server.answer_json([{"service": "openai", "endpoints": None, "secret": "openai", **times}])
        [credential] = await sandbox.set_credentials(credentials={"openai": {"secret": "openai"}})
    assert (credential.service, credential.secret) == ("openai", "openai")
    assert server.last.json == {"credentials": {"openai": {"secret": "openai"}}}
    assert server.last.url == f"/v1/runs/{SANDBOX_ID}/credentials"
