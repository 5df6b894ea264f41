"""The programs of the guide run on a real service, and print what their comments say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coppice import Sandbox

GUIDE = Path(__file__).parent.parent.parent.parent / "docs" / "guides" / "python.md"
PROGRAMS = re.findall(r"^## (.+?)$|^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
# What a line prints begins a comment at its end; a remark begins with a lower-case word, or a capital.
PRINTED = re.compile(r"print\(.*\)  # (.+?)…?$", re.MULTILINE)
DEADLINE_S = 180


def list_programs() -> list[tuple[str, str]]:
    """Returns each program with the heading above it."""
    programs: list[tuple[str, str]] = []
    heading = ""
    for title, program in PROGRAMS:
        heading = title or heading
        if program:
            programs.append((heading, program))
    return programs


def test_the_guide_has_programs() -> None:
    assert len(list_programs()) == 12


@pytest.mark.parametrize(("heading", "program"), list_programs())
def test_a_program_prints_what_its_comments_say(sandbox: Sandbox, tmp_path: Path, heading: str, program: str) -> None:
    if heading == "Long commands":
        sandbox.commands.start("echo epoch 1", tag="training").wait()
    environment = {**os.environ, "TEAM_SECRET": os.environ["COPPICE_TEST_AUDIT_SECRET"]}
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, sandbox.id],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    expected = PRINTED.findall(program)
    assert expected != []
    assert [text for text in expected if text not in result.stdout] == []
