"""Runs tests that are coroutines, and starts the loopback server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from loopback import LoopbackServer


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """The settings of the developer's environment do not reach unit tests."""
    if "service" in request.node.nodeid:
        return
    for name in ("API_KEY", "BASE_URL", "BASE_URL_TEMPLATE", "ALLOW_PLAIN_HTTP"):
        monkeypatch.delenv(f"SANDBOX_{name}", raising=False)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as started:
        yield started
