"""Settings and the loopback server of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coroutines import pytest_pyfunc_call as pytest_pyfunc_call
from loopback import LoopbackServer


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the developer's environment do not reach these tests."""
    for name in ("API_KEY", "BASE_URL", "BASE_URL_TEMPLATE", "ALLOW_PLAIN_HTTP"):
        monkeypatch.delenv(f"SANDBOX_{name}", raising=False)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as started:
        yield started
