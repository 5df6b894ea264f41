/**
 * Checks sandboxes that were saved on one host on a host whose CPU lacks features: the service refuses them, names the
 * features, and loses nothing.
 */
import assert from 'node:assert/strict';
import { CoppiceError, type Sandbox } from '../packages/sdk/src/index.ts';
import { assertState, read, writeState } from './guest-state.ts';
import type { LabHost } from './host.ts';
import type { LabService } from './lab-service.ts';
import type { Results } from './results.ts';
import { SMALL } from './short-list.ts';

const LACKING = ['aes', 'avx2'];
const READ_FLAGS = 'grep -m1 ^flags /proc/cpuinfo';
const TOKEN = 'before';

export interface OtherCpuParts {
  host: LabHost;
  service: LabService;
  results: Results;
}

/** Afterwards the host has its first CPU again, or is shut down after a failure. */
export async function checkOtherCpu(parts: OtherCpuParts): Promise<void> {
  const { host, service, results } = parts;
  const { client } = service;
  const sandbox = await results.step('create, 256 MiB', () => client.sandboxes.create(SMALL));
  await results.attempt('the guest has the features of the host', async () => {
    assertFlags(await host.read(READ_FLAGS), true);
    assertFlags(await read(sandbox, READ_FLAGS), true);
  });
  const snapshot = await results.step('snapshot, then hibernate', async () => {
    await writeState(sandbox, TOKEN);
    const saved = await sandbox.snapshot();
    await sandbox.hibernate();
    return saved;
  });
  await using undo = new AsyncDisposableStack();
  // After a failure, the next command must not run on a CPU without these features.
  undo.defer(() => host.shutDown());
  await results.step(`reboot of the host without ${LACKING.join(' and ')}`, () => restart(parts, LACKING));
  await results.attempt('a restore is refused, and the error names the features', () =>
    assertRefused(client.sandboxes.restore(snapshot.id)),
  );
  await results.attempt(
    'a resume is refused, and the error names the features; the sandbox stays hibernated',
    async () => {
      await assertRefused(sandbox.resume());
      assert.equal((await sandbox.info()).status, 'hibernated');
    },
  );
  await results.attempt('a new sandbox has neither feature', async () => {
    const other = await client.sandboxes.create(SMALL);
    assertFlags(await read(other, READ_FLAGS), false);
    await other.destroy();
  });
  await results.step('reboot of the host with its first CPU', () => restart(parts, []));
  undo.move();
  await results.attempt('the sandbox resumes', async () => {
    await sandbox.resume();
    await assertState(sandbox, TOKEN);
    await sandbox.destroy();
  });
  await results.attempt('the snapshot is restored', async () => {
    const restored: Sandbox = await client.sandboxes.restore(snapshot.id);
    await assertState(restored, TOKEN);
    await restored.destroy();
    await client.snapshots.delete(snapshot.id);
  });
}

async function restart({ host, service }: OtherCpuParts, lacking: readonly string[]): Promise<void> {
  service.disconnect();
  await host.shutDown();
  await host.start(lacking);
  assert.equal((await service.ready()).accelerator, 'kvm');
}

function assertFlags(line: string, expected: boolean): void {
  const flags = line.split(/\s+/u);
  for (const name of LACKING) assert.equal(flags.includes(name), expected, `${name}: ${line}`);
}

async function assertRefused(attempt: Promise<unknown>): Promise<void> {
  await assert.rejects(attempt, (error) => {
    assert.ok(error instanceof CoppiceError, String(error));
    assert.equal(error.code, 'snapshot_unusable');
    for (const name of LACKING) assert.match(error.message, new RegExp(`\\b${name}\\b`, 'u'));
    return true;
  });
}
