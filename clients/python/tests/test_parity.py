"""The client has the calls of the TypeScript client, and the examples of its pages are valid."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import coppice
from coppice._sync.commands import SandboxCommands
from coppice._sync.events.webhooks import Webhooks
from coppice._sync.image_builds import ImageBuilds
from coppice._sync.sandboxes import Sandboxes
from coppice._sync.settings.organization import Organization
from coppice._sync.snapshots import Snapshots

REPOSITORY = Path(__file__).parent.parent.parent.parent
SOURCES = REPOSITORY / "packages" / "sdk" / "src"
PAGES = ["README.md", "docs/guides/python.md", "docs/guides/build-images.md", "clients/python/README.md"]

# The classes of the TypeScript client, with the files that declare their methods.
CLASSES = {
    "Coppice": ["coppice.ts"],
    "Sandbox": ["sandbox/sandbox.ts", "sandbox/sandbox-egress.ts", "sandbox/sandbox-guest.ts"],
    "Command": ["commands/command.ts"],
    "commands": ["commands/sandbox-commands.ts"],
    "files": ["sandbox/sandbox-files.ts"],
    "SpawnedCommand": ["streams/spawned-command.ts"],
    "CommandStdin": ["streams/command-stdin.ts"],
    "Shell": ["streams/shell.ts"],
    "Terminal": ["streams/terminal.ts"],
    "sandboxes": ["sandbox/sandboxes.ts"],
    "snapshots": ["sandbox/snapshots.ts"],
    "images": ["images.ts"],
    "builds": ["image-builds.ts"],
    "organization": ["organization.ts"],
    "registries": ["registries.ts"],
    "budgets": ["budgets.ts"],
    "secrets": ["secrets.ts"],
    "webhooks": ["webhooks/webhooks.ts"],
}
ABSENT = {
    # They make a client of their own, for which Python has `Coppice().sandboxes`.
    "Sandbox.create",
    "Sandbox.get",
    "Sandbox.getOrCreate",
    "Sandbox.restore",
    # They carry the bytes of SSH for `coppice ssh-proxy`. Programs in Python use `spawn` or OpenSSH with that proxy.
    "Sandbox.ssh",
    "Sandbox.sshHostKey",
    # JSON.stringify calls it. Python's json has no such method; `sandbox.record` is a dataclass.
    "Sandbox.toJSON",
}
METHOD = re.compile(r"^  (?:static )?(?:async )?\*?(\w+)(?:<[^(]*>)?\(", re.MULTILINE)
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def find_class(name: str) -> type[object]:
    client = coppice.Coppice(api_key="cop_live_us_x")
    if name == "commands":
        return SandboxCommands
    if name == "files":
        return coppice.SandboxFiles
    found: type[object] = type(getattr(client, name)) if name.islower() else getattr(coppice, name)
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_the_typescript_client_has_its_counterpart(name: str) -> None:
    methods = {method for file in CLASSES[name] for method in METHOD.findall((SOURCES / file).read_text())}
    assert len(methods) > 1, "the methods are found"
    wanted = {method for method in methods if not ABSENT & {method, f"{name}.{method}"}} - {"constructor"}
    snake = {to_snake(method) for method in wanted}
    assert sorted(method for method in snake if not hasattr(find_class(name), method)) == []


# Files and interfaces of the options of the TypeScript client, with the methods that take them.
OPTIONS: dict[tuple[str, str], Callable[..., object]] = {
    ("sandbox/lifecycle.ts", "CreateOptions"): Sandboxes.create,
    ("sandbox/get-or-create.ts", "GetOrCreateOptions"): Sandboxes.get_or_create,
    ("sandbox/sandboxes.ts", "ListOptions"): Sandboxes.list,
    ("sandbox/snapshots.ts", "RestoreOptions"): Sandboxes.restore,
    ("sandbox/snapshots.ts", "SnapshotOptions"): coppice.Sandbox.snapshot,
    ("sandbox/snapshots.ts", "SnapshotChanges"): Snapshots.update,
    ("sandbox/snapshots.ts", "ListSnapshotsOptions"): Snapshots.list,
    ("sandbox/settings.ts", "SandboxSettings"): coppice.Sandbox.update,
    ("sandbox/metrics.ts", "MetricsOptions"): coppice.Sandbox.metrics,
    ("sandbox/files.ts", "UploadOptions"): coppice.Sandbox.upload,
    ("sandbox/file-changes.ts", "MakeDirectoryOptions"): coppice.SandboxFiles.mkdir,
    ("sandbox/file-changes.ts", "MoveFileOptions"): coppice.SandboxFiles.move,
    ("sandbox/file-changes.ts", "RecursiveOptions"): coppice.SandboxFiles.chown,
    ("sandbox/file-archives.ts", "UploadArchiveOptions"): coppice.SandboxFiles.upload_archive,
    ("sandbox/file-links.ts", "FileLinkOptions"): coppice.SandboxFiles.create_link,
    ("sandbox/file-events.ts", "WatchFilesOptions"): coppice.SandboxFiles.watch,
    ("streams/exec.ts", "ExecOptions"): coppice.Sandbox.stream,
    ("sandbox/files.ts", "DownloadStreamOptions"): coppice.Sandbox.download_stream,
    ("streams/shell.ts", "ShellOptions"): coppice.Sandbox.shell,
    ("streams/terminal.ts", "TerminalOptions"): coppice.Sandbox.terminal,
    ("commands/sandbox-commands.ts", "StartCommandOptions"): SandboxCommands.start,
    ("commands/sandbox-commands.ts", "ListCommandsOptions"): SandboxCommands.list,
    ("events/events.ts", "EventsOptions"): coppice.Coppice.events,
    ("events/events.ts", "ListEventsOptions"): coppice.Coppice.list_events,
    ("image-builds.ts", "BuildRequestBase"): ImageBuilds.start,
    ("organization.ts", "OrganizationAuditOptions"): Organization.audit,
    ("audit/verify-organization-audit.ts", "VerifyOrganizationAuditOptions"): coppice.verify_organization_audit,
    ("webhooks/webhooks.ts", "CreateWebhookOptions"): Webhooks.create,
    ("webhooks/webhooks.ts", "WebhookOptions"): Webhooks.update,
    ("webhooks/webhooks.ts", "RotateWebhookOptions"): Webhooks.rotate_secret,
    ("webhooks/webhooks.ts", "ListDeliveriesOptions"): Webhooks.deliveries,
    ("webhooks/verify-webhook.ts", "VerifyWebhookOptions"): coppice.verify_webhook,
}


def to_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name.replace("MiB", "Mib")).lower()


@pytest.mark.parametrize(("file", "interface"), OPTIONS)
def test_every_option_of_the_typescript_client_has_its_counterpart(file: str, interface: str) -> None:
    declaration = re.search(rf"interface {interface} [^{{]*{{\n(.*?)^}}", (SOURCES / file).read_text(), re.S | re.M)
    assert declaration is not None
    options = {to_snake(name) for name in re.findall(r"^  (\w+)\??:", declaration[1], re.M)}
    assert options != set()
    assert sorted(options - set(inspect.signature(OPTIONS[file, interface]).parameters)) == []


def test_the_examples_of_the_pages_are_well_typed(tmp_path: Path) -> None:
    count = 0
    for page in PAGES:
        for example in EXAMPLE.findall((REPOSITORY / page).read_text()):
            count += 1
            # Parts of a program use these names.
            prelude = "" if "import" in example else "from coppice import Sandbox\nsandbox: Sandbox\n"
            (tmp_path / f"example_{count}.py").write_text(prelude + example)
    assert count > 8, "the examples are found"
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path), str(tmp_path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.returncode) == ("", 0), result.stderr
