"""Clients of a real service, which SANDBOX_BASE_URL and SANDBOX_API_KEY name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coppice import Coppice, Sandbox
from coroutines import pytest_pyfunc_call as pytest_pyfunc_call

IMAGE = "coppice/base:1"


@pytest.fixture(scope="session")
def client() -> Iterator[Coppice]:
    with Coppice() as started:
        yield started


@pytest.fixture(scope="session")
def sandbox(client: Coppice) -> Iterator[Sandbox]:
    """One sandbox for all tests that neither end nor save theirs."""
    with client.sandboxes.create(image=IMAGE, mem_mib=256, timeout=0) as made:
        yield made
