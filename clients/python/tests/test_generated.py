"""The generated modules are current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import coppice

CLIENT = Path(__file__).parent.parent


@pytest.mark.parametrize("script", ["generate_models.py", "generate_sync.py"])
def test_generated_modules_are_current(script: str) -> None:
    result = subprocess.run(
        [sys.executable, str(CLIENT / "scripts" / script), "--check"], capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.returncode) == ("", 0), result.stderr


def test_all_names_exist() -> None:
    assert [name for name in coppice.__all__ if not hasattr(coppice, name)] == []
