"""Creation, copies and ends of real sandboxes, and what the service reports about them."""

from __future__ import annotations

import os
import secrets
import threading
from datetime import datetime, timedelta, timezone

import pytest

from coppice import AuditEntry, Coppice, CoppiceError, Sandbox, verify_audit

IMAGE = "coppice/base:1"
GONE = "run00000000000000000000"


def test_a_block_creates_and_destroys(client: Coppice) -> None:
    labels = {"py": secrets.token_hex(6)}
    with client.sandboxes.create(image=IMAGE, mem_mib=256, timeout=77, labels=labels) as sandbox:
        record = sandbox.info()
        assert (record.status, record.mem_mib, record.timeout, record.max_lifetime) == ("running", 256, 77, None)
        assert [one.id for one in client.sandboxes.list(labels=labels)] == [sandbox.id]
        assert sandbox.set_timeout(0).expires_at is None
    assert sandbox.refresh().status == "destroyed"
    assert client.sandboxes.list(labels=labels).all() == []
    [entry] = client.history(labels=labels, from_=datetime.now(timezone.utc) - timedelta(hours=1)).all()
    assert (entry.id, entry.status) == (sandbox.id, "destroyed")
    assert entry.cost_cents > 0
    with pytest.raises(CoppiceError) as caught:
        sandbox.destroy()
    assert (caught.value.status, caught.value.code) == (409, "invalid_state")
    assert client.sandboxes.get(GONE) is None


def test_a_detached_sandbox_stays_and_destroy_returns_its_usage(client: Coppice) -> None:
    with client.sandboxes.create(image=IMAGE, mem_mib=256) as sandbox:
        sandbox.detach()
    assert sandbox.info().status == "running"
    used = sandbox.destroy()
    assert used.status == "destroyed"
    assert min(used.cpu_ms, used.mem_peak_bytes, used.uptime_ms, used.cost_cents) > 0


def test_bad_input_is_refused_with_the_field(client: Coppice) -> None:
    with pytest.raises(CoppiceError) as caught:
        client.sandboxes.create(image=IMAGE, mem_mib=1)
    assert (caught.value.status, caught.value.code) == (400, "invalid_request")
    assert "mem_mib" in (caught.value.detail or "")
    with pytest.raises(CoppiceError) as floating:
        client.sandboxes.create(image="node:latest")
    assert floating.value.code == "image_not_pinned"
    with pytest.raises(CoppiceError) as wrong, Coppice(api_key="cop_live_us_" + "x" * 40) as stranger:
        stranger.usage()
    assert wrong.value.code == "unauthorized"


def test_threads_share_a_client_and_one_key_makes_one_sandbox(client: Coppice) -> None:
    key = secrets.token_hex(8)
    made: list[Sandbox] = []

    def create() -> None:
        made.append(client.sandboxes.create(image=IMAGE, mem_mib=256, idempotency_key=key))

    threads = [threading.Thread(target=create) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == 3
    assert len({one.id for one in made}) == 1
    made[0].destroy()


def test_copies_have_the_state_of_their_moment(client: Coppice) -> None:
    with client.sandboxes.create(image=IMAGE, mem_mib=256, timeout=0) as sandbox:
        sandbox.exec("echo first > /root/state")
        snapshot = sandbox.snapshot(name="py")
        try:
            sandbox.exec("echo second > /root/state")
            [child] = sandbox.fork()
            with child:
                assert child.download("/root/state") == "second\n"
            with client.sandboxes.restore(snapshot.id, labels={"from": "py"}, max_lifetime=None) as restored:
                assert restored.download("/root/state") == "first\n"
                assert restored.record.labels == {"from": "py"}
            sandbox.rollback(snapshot.id)
            assert sandbox.download("/root/state") == "first\n"
            assert sandbox.hibernate().status == "hibernated"
            with pytest.raises(CoppiceError) as caught:
                sandbox.exec("true")
            assert caught.value.code == "invalid_state"
            assert sandbox.resume().status == "running"
            assert sandbox.exec("cat /root/state").stdout == "first\n"
            family = sandbox.tree()
            assert (family.root_id, len(family.nodes)) == (sandbox.id, 3)
            assert [one.id for one in client.snapshots.list(run_id=sandbox.id)] == [snapshot.id]
        finally:
            client.snapshots.delete(snapshot.id)


def test_the_audit_log_is_verified_without_the_service(client: Coppice) -> None:
    secret = os.environ["COPPICE_TEST_AUDIT_SECRET"]
    with client.sandboxes.create(image=IMAGE, mem_mib=256) as sandbox:
        sandbox.exec("echo 'é \U0001f600 \\'; exit 3")
        sandbox.upload("/tmp/ü", b"x")
        head = sandbox.audit_head()
    followed: list[AuditEntry] = list(sandbox.audit(follow=True))
    assert followed[-1].event == "sandbox.destroyed"
    verdict = verify_audit(followed, secret, head=head, sandbox_id=sandbox.id)
    assert (verdict.valid, verdict.complete, verdict.entries) == (True, True, len(followed)), verdict.message
    assert [entry.seq for entry in sandbox.audit(after=2)] == [entry.seq for entry in followed[2:]]
    assert verify_audit(followed[:2] + followed[3:], secret).problem == "missing"
    assert verify_audit(followed, secret + "x").problem == "altered"


def test_usage_statement_profiles_and_images_are_read(client: Coppice) -> None:
    usage = client.usage()
    assert usage.history_sandboxes > 0
    assert usage.total_cost_cents > 0
    statement = client.statement(usage.as_of[:7])
    assert statement.sandboxes == len(statement.lines) > 0
    assert "locked-down" in [profile.name for profile in client.network_profiles()]
    steps: list[str] = []
    image = client.images.build(IMAGE, on_progress=lambda progress: steps.append(progress.step))
    assert image.status == "ready"
    assert image.image in [one.image for one in client.images.list()]


def test_registries_are_stored_without_showing_passwords(client: Coppice) -> None:
    client.registries.set("registry.example:5000", username="robot", password="hidden")
    assert "hidden" not in repr(client.registries.list())
    assert ("registry.example:5000", "robot") in [(one.registry, one.username) for one in client.registries.list()]
    client.registries.delete("registry.example:5000")
    with pytest.raises(CoppiceError) as caught:
        client.registries.delete("registry.example:5000")
    assert caught.value.code == "not_found"


def test_a_disk_outlives_its_sandbox(client: Coppice) -> None:
    name = f"py-{secrets.token_hex(4)}"
    assert client.create_disk(name=name, size_gb=1).status == "available"
    try:
        with client.sandboxes.create(image=IMAGE, mem_mib=256, disk=name) as sandbox:
            sandbox.exec("echo kept > /workspace/file && sync")
            assert client.snapshot_disk(name, name="one", sync=True).size_gb == 1
        fork = client.fork_disk(name, snapshot="one", name=f"{name}-2")
        assert fork.parent == name
        with client.sandboxes.create(image=IMAGE, mem_mib=256, disk=fork.name) as sandbox:
            assert sandbox.download("/workspace/file") == "kept\n"
        client.delete_disk(fork.name)
        assert client.grow_disk(name, 2).size_gb == 2
        assert client.flush_disk(name).dirty_bytes == 0
        assert [one.name for one in client.list_disk_snapshots(name)] == ["one"]
        with client.export_disk(name, format="qcow2") as image:
            assert next(iter(image))[:4] == b"QFI\xfb"
        client.delete_disk_snapshot(name, "one")
    finally:
        client.delete_disk(name)
    assert client.get_disk(name) is None
