"""Errors, retries and deadlines."""

from __future__ import annotations

import logging
import pickle
import time

import pytest

from coppice import AsyncCoppice, CoppiceError
from loopback import SANDBOX_ID, TEST_KEY, LoopbackServer, Reply, Seen, in_turn, refusing_url, wire_record


async def test_an_error_has_the_fields_of_the_service(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.error(429, "capacity", "é" * 300, {"retry-after": "99"}))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    error = caught.value
    assert (error.status, error.code, error.request_id, error.retry_after_ms) == (429, "capacity", "req0a1b", 99_000)
    assert error.detail == "é" * 300
    assert str(error).startswith('HTTP 429 from GET /v1/usage: {"error"')
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.code, copy.detail) == (str(error), error.code, error.detail)


async def test_an_error_of_a_proxy_has_its_status_and_first_bytes(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.body(b"<html>" + b"x" * 100_000, 502, {"x-request-id": "up1"}))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    error = caught.value
    assert (error.code, error.detail, error.request_id) == ("http_502", None, "up1")
    assert len(str(error)) < 300


async def test_an_answer_of_another_shape_is_invalid(server: LoopbackServer) -> None:
    record = wire_record()
    del record["image"]
    answers = [b"<html>", b"[]", b"null", b"[" * 100_000, str(record).replace("'", '"').encode()]
    async with server.async_client() as client:
        for body in answers:
            server.on_request(lambda _, reply, body=body: reply.body(body))  # type: ignore[misc]
            with pytest.raises(CoppiceError) as caught:
                await client.sandboxes.get(SANDBOX_ID)
            assert caught.value.code == "invalid_response"
            assert "is base_url right?" in str(caught.value)


async def test_a_redirect_is_not_followed(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.body(b"", 302, {"location": "https://elsewhere.example/"}))
    async with server.async_client() as client:
        with pytest.raises(CoppiceError, match="it points to https://elsewhere"):
            await client.usage()
    assert len(server.seen) == 1


async def test_busy_answers_are_retried_where_that_is_safe(server: LoopbackServer) -> None:
    busy = {"retry-after": "0"}

    def answer(seen: Seen, reply: Reply) -> None:
        if len(server.seen) % 3:
            reply.error(503, "unavailable", headers=busy)
        else:
            reply.json(wire_record(), 201)

    server.on_request(answer)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        keys = {one.headers["idempotency-key"] for one in server.seen}
        assert (len(server.seen), len(keys)) == (3, 1)
        with pytest.raises(CoppiceError):
            await sandbox.exec("true")
        assert len(server.seen) == 4


async def test_retries_are_bounded_and_need_a_short_wait(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.error(503, "unavailable", headers={"retry-after": "0"}))
    async with server.async_client(max_retries=1) as client:
        with pytest.raises(CoppiceError):
            await client.usage()
    assert len(server.seen) == 2
    for headers in ({"retry-after": "31"}, {}):
        server.seen.clear()
        server.on_request(lambda _, reply, headers=headers: reply.error(503, "unavailable", headers=headers))  # type: ignore[misc]
        async with server.async_client() as client:
            with pytest.raises(CoppiceError):
                await client.usage()
        assert len(server.seen) == 1


async def test_a_refused_connection_is_retried_also_for_a_name_with_several_addresses() -> None:
    url = refusing_url()
    for address in (url, url.replace("127.0.0.1", "localhost")):
        started_s = time.monotonic()
        async with AsyncCoppice(api_key=TEST_KEY, base_url=address, max_retries=1) as client:
            with pytest.raises(CoppiceError) as caught:
                await client.usage()
        assert (caught.value.status, caught.value.code) == (0, "connection_refused")
        assert time.monotonic() - started_s >= 0.2


async def test_a_broken_connection_is_not_retried(server: LoopbackServer) -> None:
    server.on_request(lambda _, reply: reply.cut())
    async with server.async_client() as client:
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    assert (caught.value.code, len(server.seen)) == ("connection_failed", 1)


async def test_a_silent_service_is_a_timeout(server: LoopbackServer) -> None:
    def stay_silent(_: Seen, reply: Reply) -> None:
        reply.wait_for_end()

    server.on_request(stay_silent)
    async with server.async_client(timeout_ms=200) as client:
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    assert caught.value.code == "timeout"
    assert "GET /v1/usage: timed out after" in str(caught.value)


async def test_an_endless_answer_in_small_pieces_is_a_timeout(server: LoopbackServer) -> None:
    def drip(_: Seen, reply: Reply) -> None:
        reply.begin(200, {"content-length": "1000000"})
        for _number in range(1000):
            reply._handler.wfile.write(b" ")
            time.sleep(0.02)

    server.on_request(drip)
    started_s = time.monotonic()
    async with server.async_client(timeout_ms=300) as client:
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    assert caught.value.code == "timeout"
    assert time.monotonic() - started_s < 3


async def test_an_endless_error_in_small_pieces_ends_with_the_timeout(server: LoopbackServer) -> None:
    def drip(_: Seen, reply: Reply) -> None:
        reply.begin(500, {"content-length": "1000000"})
        for _number in range(1000):
            reply._handler.wfile.write(b" ")
            time.sleep(0.02)

    server.on_request(drip)
    started_s = time.monotonic()
    async with server.async_client(timeout_ms=300) as client:
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    assert caught.value.code == "http_500"
    assert time.monotonic() - started_s < 3


async def test_an_event_of_endless_lines_is_refused(server: LoopbackServer) -> None:
    def endless(seen: Seen, reply: Reply) -> None:
        if not seen.url.endswith("/stream"):
            reply.json(wire_record(), 201)
            return
        reply.begin(200, {"transfer-encoding": "chunked"})
        for _number in range(20):
            reply.chunk(b"data: x\n" * 131_072)
        reply.wait_for_end()

    server.on_request(endless)
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        with pytest.raises(CoppiceError, match="an event has over") as caught:
            async for _ in sandbox.stream("yes"):
                pass
    assert caught.value.code == "invalid_response"


async def test_an_error_after_the_status_line_is_reported(server: LoopbackServer) -> None:
    body = b'{"error":{"code":"guest_unreachable","message":"gone"}}'

    def cut_after(_: Seen, reply: Reply) -> None:
        reply.begin(200, {"content-length": "10000"})
        reply._handler.wfile.write(body)
        reply.cut()

    server.on_request(
        in_turn(lambda _, reply: reply.json(wire_record(), 201), cut_after, lambda _, reply: reply.body(body))
    )
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        for _ in range(2):
            with pytest.raises(CoppiceError) as caught:
                await sandbox.exec("true")
            assert (caught.value.status, caught.value.code) == (200, "guest_unreachable")
            assert "failed later" in str(caught.value)


async def test_the_key_appears_in_no_repr_no_error_and_no_log(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.on_request(in_turn(lambda _, reply: reply.json(wire_record(), 201), lambda _, reply: reply.cut()))
    async with server.async_client() as client:
        sandbox = await client.sandboxes.create()
        texts = [repr(one) for one in (client, sandbox, client.sandboxes, client._transport.key, vars(client))]
        texts.append(repr(vars(client._transport)))
        with pytest.raises(CoppiceError) as caught:
            await client.usage()
    texts += [str(caught.value), repr(caught.value), repr(caught.value.__cause__), caplog.text]
    assert len(caplog.records) > 0
    assert [text for text in texts if "kkkk" in text] == []
