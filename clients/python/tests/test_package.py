"""The package is built, and works in an empty environment."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CLIENT = Path(__file__).parent.parent
# The wheels from which this environment was made lie beside it.
WHEELS = Path(sys.prefix).parent / "wheels"
DEADLINE_S = 180

PROGRAM = """
import importlib.metadata, pathlib, sys
import coppice, httpx
client = coppice.Coppice(api_key="cop_live_us_x")
assert pathlib.Path(coppice.__file__).is_relative_to(sys.prefix), coppice.__file__
assert pathlib.Path(coppice.__file__).with_name("py.typed").exists()
print(client.base_url, importlib.metadata.version("coppice"))
"""


def run(*command: str | Path) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=CLIENT,
        # Without the sources of this checkout, and without an index.
        env={"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the sdist, and the wheel from it."""
    target = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target)
    return target


def test_wheel_and_sdist_have_the_sources_and_the_metadata(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    assert wheel.name == "coppice-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read("coppice-0.1.0.dist-info/METADATA").decode()
    packed = {f"coppice/{path.relative_to(CLIENT / 'src' / 'coppice')}" for path in CLIENT.glob("src/coppice/**/*.py")}
    assert packed < names
    assert {"coppice/py.typed", "coppice-0.1.0.dist-info/licenses/LICENSE"} < names
    for line in ("Name: coppice", "License-Expression: Apache-2.0", "Requires-Python: >=3.10", "# coppice"):
        assert line in metadata.splitlines()
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:")]
    assert required == [
        "Requires-Dist: httpcore<2,>=1.0.4",
        "Requires-Dist: httpx<1,>=0.27",
        "Requires-Dist: websockets>=13",
    ]
    assert names == packed | {
        "coppice/py.typed",
        *(f"coppice-0.1.0.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")),
    }
    with tarfile.open(sdist) as archive_of_sources:
        sources = {name.removeprefix("coppice-0.1.0/") for name in archive_of_sources.getnames()}
    assert sources == {f"src/{name}" for name in packed | {"coppice/py.typed"}} | {
        "README.md",
        "LICENSE",
        "PKG-INFO",
        "pyproject.toml",
        ".gitignore",
    }


def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    assert WHEELS.is_dir(), f"{WHEELS} does not exist: run npm run setup -- --tests"
    [wheel] = built.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path)
    python = tmp_path / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", wheel)
    assert run(python, "-I", "-c", PROGRAM) == "http://127.0.0.1:8080 0.1.0\n"
