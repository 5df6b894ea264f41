import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { createReadStream, readdirSync } from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import { assertResources, hostResources } from '../fixtures/host/leaks.ts';
import { NODE_IMAGE, shared } from '../fixtures/service/shared.ts';

async function imageHashes(dataDir: string): Promise<string[]> {
  const directory = join(dataDir, 'runner', 'images');
  const files = readdirSync(directory, { recursive: true, encoding: 'utf8' }).filter((name) =>
    name.endsWith('.squashfs'),
  );
  const hashes = files.toSorted().map(async (name) => {
    const hash = createHash('sha256');
    await pipeline(createReadStream(join(directory, name)), hash);
    return hash.digest('hex');
  });
  return Promise.all(hashes);
}

test('a sandbox from a registry image runs commands and is destroyed without a trace', async () => {
  const { api, service } = await shared();
  const before = hostResources(service);
  const sandbox = await api.create({ image: NODE_IMAGE });
  assert.match(sandbox.id, /^run[0-9a-f]{20}$/u);
  assert.equal(sandbox['status'], 'running');
  assert.match(String(sandbox['image']), /^docker\.io\/library\/node:22-slim@sha256:[0-9a-f]{64}$/u);
  assert.deepEqual(
    [sandbox['vcpus'], sandbox['mem_mib'], sandbox['disk_mib'], sandbox['region']],
    [1, 1024, 4096, 'us'],
  );
  const node = await api.exec(sandbox.id, 'node --version; echo $NODE_VERSION');
  assert.match(node.stdout, /^v22\.\d+\.\d+\n22\.\d+\.\d+\n$/u);

  const destroyed = await api.destroy(sandbox.id);
  assert.equal(destroyed.status, 200);
  assert.equal(destroyed.body['status'], 'destroyed');
  for (const field of ['cpu_ms', 'mem_peak_bytes', 'uptime_ms', 'cost_cents']) {
    assert.ok(Number(destroyed.body[field]) > 0, `${field} is ${String(destroyed.body[field])}`);
  }
  assert.equal((await api.get(sandbox.id))['status'], 'destroyed');
  const again = await api.destroy(sandbox.id);
  assert.equal(again.status, 409);
  await assertResources(service, before);
});

test('the guest has vcpus, mem_mib and disk_mib as requested', async () => {
  const { api } = await shared();
  const sandbox = await api.create({ image: 'coppice/base:1', vcpus: 2, mem_mib: 512, disk_mib: 1024 });
  const seen = await api.exec(
    sandbox.id,
    "nproc; awk '/^MemTotal/{print $2}' /proc/meminfo; df -k --output=size / | tail -1",
  );
  const [cpus, memKib, diskKib] = seen.stdout.trim().split(/\s+/u).map(Number);
  assert.equal(cpus, 2);
  assert.ok(memKib! > 0.85 * 512 * 1024 && memKib! <= 512 * 1024, `memory ${memKib} KiB`);
  assert.ok(diskKib! > 0.93 * 1024 * 1024 && diskKib! <= 1024 * 1024, `disk ${diskKib} KiB`);
  await api.destroy(sandbox.id);
});

test('a guest can have any memory size that its host can give', async () => {
  const { api } = await shared();
  for (const mem_mib of [128, 1000, 4096]) {
    const { id } = await api.create({ image: 'coppice/base:1', mem_mib, disk_mib: 512 });
    const { stdout } = await api.exec(id, "awk '/^MemTotal/{print $2}' /proc/meminfo");
    const seenMiB = Number(stdout) / 1024;
    assert.ok(seenMiB > 0.7 * mem_mib && seenMiB <= mem_mib, `${seenMiB} of ${mem_mib} MiB`);
    await api.destroy(id);
  }
});

test('the guest has its own kernel', async () => {
  const { api } = await shared();
  const sandbox = await api.create({ image: 'coppice/base:1' });
  const { stdout } = await api.exec(sandbox.id, 'uname -r; cat /proc/sys/kernel/random/boot_id');
  assert.notEqual(stdout.split('\n')[0], release());
  await api.destroy(sandbox.id);
});

test('/, /tmp, /home and /workspace are writable, and writes appear neither in the image nor in a sibling', async () => {
  const { api, service } = await shared();
  const hashes = await imageHashes(service.dataDir);
  const [first, second] = await Promise.all([
    api.create({ image: NODE_IMAGE }),
    api.create({ image: NODE_IMAGE }),
  ]);
  const written = await api.exec(
    first.id,
    'for d in / /tmp /home /workspace /etc; do echo mine > $d/probe || exit 1; done; rm /usr/local/bin/node',
  );
  assert.deepEqual([written.exit_code, written.stderr], [0, '']);
  const seen = await api.exec(
    second.id,
    'ls /probe /tmp/probe /home/probe /workspace/probe /etc/probe 2>/dev/null; node --version',
  );
  assert.match(seen.stdout, /^v22[^\n]*\n$/u);
  assert.deepEqual(await imageHashes(service.dataDir), hashes);
  await Promise.all([api.destroy(first.id), api.destroy(second.id)]);
});

test('sandboxes of one template differ in entropy, identity and time of day', async () => {
  const { api } = await shared();
  const [first, second] = await Promise.all([
    api.create({ image: 'coppice/base:1' }),
    api.create({ image: 'coppice/base:1' }),
  ]);
  const command =
    'cat /proc/sys/kernel/random/uuid; hostname; cat /etc/machine-id; hostname -I 2>/dev/null || ip -4 -o addr show eth0';
  const [one, two] = await Promise.all([api.exec(first.id, command), api.exec(second.id, command)]);
  const differing = one.stdout
    .split('\n')
    .filter((line, index) => line !== '' && line === two.stdout.split('\n')[index]);
  assert.deepEqual(differing, []);
  const clock = Number((await api.exec(first.id, 'date +%s%3N')).stdout);
  assert.ok(Math.abs(clock - Date.now()) < 2000, `guest clock is ${clock - Date.now()} ms off`);
  await Promise.all([api.destroy(first.id), api.destroy(second.id)]);
});

test('several concurrent creates all run', async () => {
  const { api, service } = await shared();
  const before = hostResources(service);
  const sandboxes = await Promise.all(
    Array.from({ length: 8 }, () => api.create({ image: 'coppice/base:1', mem_mib: 256 })),
  );
  const outputs = await Promise.all(sandboxes.map((sandbox) => api.exec(sandbox.id, 'hostname')));
  assert.deepEqual(
    outputs.map((output) => output.stdout.trim()),
    sandboxes.map((sandbox) => sandbox.id),
  );
  const listed = await api.call('GET', '/v1/runs');
  const ids = new Set((listed.body as unknown as { id: string }[]).map((record) => record.id));
  for (const sandbox of sandboxes) assert.ok(ids.has(sandbox.id));
  await Promise.all(sandboxes.map((sandbox) => api.destroy(sandbox.id)));
  await assertResources(service, before);
});
