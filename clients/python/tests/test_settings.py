"""Options of the client and the environment."""

from __future__ import annotations

import pytest

from coppice import DEFAULT_BASE_URL, AsyncCoppice, Coppice, CoppiceError
from loopback import SANDBOX_ID, TEST_KEY, LoopbackServer, wire_record


def test_the_key_comes_from_the_option_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for client in (Coppice, AsyncCoppice):
        with pytest.raises(ValueError, match="SANDBOX_API_KEY"):
            client()
    monkeypatch.setenv("SANDBOX_API_KEY", TEST_KEY)
    assert Coppice().base_url == DEFAULT_BASE_URL
    for wrong in ("", "a key", "clé", "a\nb"):
        with pytest.raises(ValueError, match="key") as caught:
            Coppice(api_key=wrong)
        assert not wrong or wrong not in str(caught.value)


def test_the_address_is_the_first_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def address(**options: str) -> str:
        return Coppice(api_key=TEST_KEY, **options).base_url  # type: ignore[arg-type]

    assert address() == DEFAULT_BASE_URL
    monkeypatch.setenv("SANDBOX_BASE_URL_TEMPLATE", "https://{region}.environment.example/")
    assert address() == "https://us.environment.example"
    assert address(base_url_template="https://{region}.option.example/a/") == "https://us.option.example/a"
    monkeypatch.setenv("SANDBOX_BASE_URL", "https://environment.example")
    assert address(base_url_template="https://{region}.option.example") == "https://environment.example"
    assert address(base_url="https://option.example//") == "https://option.example"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"base_url": "ftp://x"}, "base_url must be an http or https address"),
        ({"base_url": "x"}, "base_url must be an http or https address"),
        ({"base_url": "https://"}, "base_url must be an http or https address"),
        ({"base_url": "https://[::1"}, "base_url must be an http or https address"),
        ({"base_url": "https://x y"}, "base_url must be an http or https address"),
        ({"base_url": "https://user:pass@x"}, "must not contain a user"),
        ({"base_url": "https://x/?a=b"}, "a query"),
        ({"base_url": "http://sandboxes.example"}, "plain HTTP"),
        ({"base_url": "http://127.0.0.1.example"}, "plain HTTP"),
        ({"base_url": "http://127.999.1.1"}, "base_url must be an http or https address"),
        ({"base_url": "http://localhost.example"}, "plain HTTP"),
        ({"base_url": "https://127.0.0.1\\.example"}, "base_url must be an http or https address"),
        ({"base_url_template": "https://x"}, "must hold {region}"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": float("nan")}, "timeout_ms"),
        ({"max_retries": -1}, "max_retries"),
    ],
)
def test_invalid_settings_are_named(options: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("{", r"\{")) as caught:
        Coppice(api_key=TEST_KEY, **options)  # type: ignore[arg-type]
    assert TEST_KEY not in str(caught.value)


def test_plain_http_reaches_this_machine_or_is_allowed_explicitly(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("localhost", "a.localhost", "127.1.2.3:80", "[::1]:8080"):
        assert Coppice(api_key=TEST_KEY, base_url=f"http://{host}").base_url == f"http://{host}"
    options = {"api_key": TEST_KEY, "base_url": "http://vpn.example"}
    assert Coppice(**options, allow_plain_http=True).base_url == "http://vpn.example"  # type: ignore[arg-type]
    monkeypatch.setenv("SANDBOX_ALLOW_PLAIN_HTTP", "true")
    assert Coppice(**options).base_url == "http://vpn.example"  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="plain HTTP"):
        Coppice(**options, allow_plain_http=False)  # type: ignore[arg-type]


def test_a_region_needs_a_key_that_names_it() -> None:
    with pytest.raises(ValueError, match="names no region") as caught:
        Coppice(api_key="another-key", base_url_template="https://{region}.example")
    assert "another-key" not in str(caught.value)


def test_a_password_in_a_wrong_address_is_not_shown() -> None:
    with pytest.raises(ValueError, match="base_url must be an http or https address") as caught:
        Coppice(api_key=TEST_KEY, base_url="user:secret@host")
    assert "secret" not in str(caught.value)


def test_plain_http_uses_no_proxy_of_the_environment(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackServer() as proxy:
        proxy.answer_json([])
        server.answer_json([])
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with server.client() as client:
            assert client.network_profiles() == []
            server.on_socket(lambda peer: peer.next() and None)
            sandbox = client.sandboxes.get(SANDBOX_ID)
            assert sandbox is not None
            sandbox.spawn("true").close()
        assert (len(server.seen), proxy.seen) == (3, [])


def test_https_uses_a_tunnel_of_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with LoopbackServer() as proxy:
        proxy.answer_json({}, 403)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with Coppice(api_key=TEST_KEY, base_url="https://sandboxes.example") as client:
            with pytest.raises(CoppiceError) as caught:
                client.usage()
        assert caught.value.code == "connection_failed"
        assert proxy.last.method == "CONNECT"
        assert TEST_KEY not in str(proxy.seen)


def test_an_idempotency_key_that_is_no_header_is_refused(server: LoopbackServer) -> None:
    server.answer_json(wire_record(), 201)
    with server.client() as client:
        for wrong in ("", "a b", "a\nb", "é"):
            with pytest.raises(ValueError, match="idempotency_key"):
                client.sandboxes.create(idempotency_key=wrong)
    assert server.seen == []
