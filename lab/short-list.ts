/** Tests each sandbox feature once, under KVM, with at most two sandboxes at a time. */
import assert from 'node:assert/strict';
import { verifyAudit, type Coppice, type CreateOptions, type Sandbox } from '../packages/sdk/src/index.ts';
import { assertState, read, writeState } from './guest-state.ts';
import type { LabHost } from './host.ts';
import type { LabService } from './lab-service.ts';
import { Outside } from './outside-service.ts';
import type { Owner } from './owner.ts';
import type { Results } from './results.ts';

export const SMALL = { image: 'coppice/base:1', memMiB: 256, diskMiB: 256, timeout: 0 } as const;
const ALLOWED = 'api.openai.com';
const REFUSED = 'allowed.example';
const SECRET = 'sk-of-the-lab';
const PORT = 8000;

export interface ShortListParts {
  host: LabHost;
  service: LabService;
  owner: Owner;
  results: Results;
}

export async function checkShortList(parts: ShortListParts): Promise<void> {
  const { results, service } = parts;
  const { client } = service;
  const sandbox = await results.step('create, 256 MiB', () => client.sandboxes.create(SMALL));
  await results.attempt('the guest runs under KVM', async () => {
    const found = await read(
      sandbox,
      'dmesg | grep -i hypervisor; cat /sys/devices/system/clocksource/*/current_clocksource',
    );
    assert.match(found, /KVM[\s\S]*kvm-clock/u);
  });
  await results.attempt('exec', async () => assert.equal(await read(sandbox, 'echo $((6 * 7))'), '42\n'));
  await results.attempt('files: upload, list, download', () => checkFiles(sandbox));
  await results.attempt('proxy to a port', () => checkProxy(service, sandbox));
  await results.attempt('fork: same memory and disk, then each its own', () => checkFork(sandbox));
  await results.attempt('snapshot, restore', () => checkSnapshot(client, sandbox));
  await results.attempt('rollback', () => checkRollback(sandbox));
  await results.attempt('hibernate, resume', () => checkHibernation(sandbox));
  await results.attempt('audit log: complete chain and HMAC', () => checkAudit(parts.owner, sandbox));
  await results.attempt('destroy: a bill', async () => {
    const { costCents, uptimeMs } = await sandbox.destroy();
    assert.ok(costCents > 0 && uptimeMs > 0);
    const [last] = await client.history({ limit: 1 });
    assert.deepEqual([last?.id, last?.costCents], [sandbox.id, costCents]);
  });
  await results.attempt('persistent disk: outlives its sandbox; a fork of its snapshot', () =>
    checkDisk(client),
  );
  await checkEgress(parts);
}

async function checkFiles(sandbox: Sandbox): Promise<void> {
  const text = 'one line\n';
  await sandbox.upload('/workspace/a/file', text);
  assert.deepEqual(
    (await sandbox.listFiles('/workspace/a')).map(({ path }) => path),
    ['/workspace/a/file'],
  );
  assert.equal(await sandbox.download('/workspace/a/file'), text);
}

async function checkProxy(service: LabService, sandbox: Sandbox): Promise<void> {
  await read(sandbox, `cd /workspace/a && python3 -m http.server ${PORT} > /dev/null 2>&1 &`);
  const ask = `until curl -s -o /dev/null 127.0.0.1:${PORT}; do :; done`;
  await read(sandbox, `timeout 200 sh -c '${ask}'`);
  const headers = { authorization: `Bearer ${service.apiKey}` };
  const answer = await fetch(sandbox.url(PORT, '/file'), { headers });
  assert.deepEqual([answer.status, await answer.text()], [200, 'one line\n']);
}

async function checkFork(sandbox: Sandbox): Promise<void> {
  await writeState(sandbox, 'before-fork');
  const [child] = await sandbox.fork();
  try {
    await assertState(child, 'before-fork');
    await writeState(child, 'child');
    await assertState(sandbox, 'before-fork');
  } finally {
    await child.destroy();
  }
}

async function checkSnapshot(client: Coppice, sandbox: Sandbox): Promise<void> {
  await writeState(sandbox, 'saved');
  const snapshot = await sandbox.snapshot();
  await writeState(sandbox, 'later');
  const restored = await client.sandboxes.restore(snapshot.id);
  try {
    await assertState(restored, 'saved');
  } finally {
    await restored.destroy();
  }
  await client.snapshots.delete(snapshot.id);
}

async function checkRollback(sandbox: Sandbox): Promise<void> {
  await writeState(sandbox, 'first');
  const { id } = await sandbox.snapshot();
  await writeState(sandbox, 'second');
  await sandbox.rollback(id);
  await assertState(sandbox, 'first');
}

async function checkHibernation(sandbox: Sandbox): Promise<void> {
  await writeState(sandbox, 'asleep');
  assert.equal((await sandbox.hibernate()).status, 'hibernated');
  assert.equal((await sandbox.resume()).status, 'running');
  await assertState(sandbox, 'asleep');
}

async function checkDisk(client: Coppice): Promise<void> {
  await client.createDisk({ name: 'short', sizeGb: 1 });
  const first = await client.sandboxes.create({ ...SMALL, disk: 'short' });
  await read(first, 'echo one > /workspace/file && sync');
  await client.snapshotDisk('short', { name: 'one', sync: true });
  await read(first, 'echo two > /workspace/file');
  await first.destroy();
  const options = { ...SMALL, forkFromDisk: 'short', diskSnapshot: 'one', disk: 'short-fork' };
  const fork = await client.sandboxes.create(options);
  assert.equal(await read(fork, 'cat /workspace/file'), 'one\n');
  const second = await client.sandboxes.create({ ...SMALL, disk: 'short' });
  assert.equal(await read(second, 'cat /workspace/file'), 'two\n');
  for (const sandbox of [fork, second]) await sandbox.destroy();
  for (const name of ['short-fork', 'short']) await client.deleteDisk(name);
}

/** Reads the log to its end, and verifies it with the head that the service reports. */
export async function checkAudit(owner: Owner, sandbox: Sandbox): Promise<void> {
  const { auditKeyId } = await sandbox.info();
  const secret = await owner.readAuditSecret(auditKeyId ?? '');
  const head = await sandbox.auditHead();
  const verdict = await verifyAudit(sandbox.audit(), secret, { head, sandboxId: sandbox.id });
  assert.ok(verdict.valid, verdict.valid ? '' : verdict.message);
}

async function checkEgress({ host, service, results }: ShortListParts): Promise<void> {
  const outside = await results.step(
    'a simulated internet for guests, and a restart of the service with its resolver',
    async () => {
      const started = await Outside.start(host);
      await service.ready();
      return started;
    },
  );
  const options: CreateOptions = {
    ...SMALL,
    network: { allow: [ALLOWED] },
    credentials: { openai: SECRET },
  };
  const sandbox = await results.step('create with a policy and a credential', () =>
    service.client.sandboxes.create(options),
  );
  await results.attempt('policy: other hosts are refused, and the refusal is in the audit log', async () => {
    const { exitCode } = await sandbox.exec(`curl -s -m 60 http://${REFUSED}/`, { timeout: 120 });
    assert.notEqual(exitCode, 0);
    await read(sandbox, `curl -sS -m 120 -k -o /dev/null https://${ALLOWED}/`);
    const blocked = (await readAll(sandbox)).filter(({ event }) => event === 'network.blocked');
    assert.ok(blocked.length > 0);
  });
  await results.attempt('credential: added outside of the guest, never visible in it', async () => {
    const status = await read(
      sandbox,
      `curl -sS -m 120 -o /dev/null -w '%{http_code}' "$OPENAI_BASE_URL/models" -H "Authorization: Bearer $OPENAI_API_KEY"`,
    );
    assert.equal(status, '200');
    assert.doesNotMatch(await read(sandbox, 'env'), new RegExp(SECRET, 'u'));
    const seen = await outside.readSeen();
    assert.ok(seen.includes(`Bearer ${SECRET}`), 'the external service received the secret');
    const proxied = (await readAll(sandbox)).filter(({ event }) => event === 'credential.proxied');
    assert.equal(proxied.length, 1);
  });
  await sandbox.destroy();
}

async function readAll(sandbox: Sandbox): Promise<{ event: string }[]> {
  return Array.fromAsync(sandbox.audit());
}
