import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { VmmError, VmmStartError } from '../vm/vmm.ts';
import { BootEndedError } from './boot-once.ts';
import { UnfitCpuError, type KvmCpus } from './boot-with-kvm.ts';
import { findKvmObstacle, tryKvm, type KvmFinding } from './kvm-probe.ts';

const CPUS: KvmCpus = { host: { avx: true }, chosen: { avx: true } };
const LATE = new DeadlineError('booting a kernel with KVM', 10_000);

function tryFailing(error: unknown): Promise<KvmFinding> {
  const boot = async (): Promise<never> => {
    throw error;
  };
  return tryKvm({ findObstacle: () => undefined, boot }, 10_000);
}

test('a missing or inaccessible device is reported without a boot', async () => {
  let boots = 0;
  const boot = async (): Promise<KvmCpus> => {
    boots += 1;
    return CPUS;
  };
  const finding = await tryKvm({ findObstacle: () => 'there is no /dev/kvm', boot }, 10_000);
  assert.deepEqual(finding, { outcome: 'absent', reason: 'there is no /dev/kvm' });
  const works = await tryKvm({ findObstacle: () => undefined, boot }, 10_000);
  assert.deepEqual(works, { outcome: 'works', cpus: CPUS });
  assert.equal(boots, 1);
});

test('the reason why the device cannot be opened is reported', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'kvm-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const device = join(directory, 'kvm');
  assert.equal(findKvmObstacle(device), `there is no ${device} on this host`);
  writeFileSync(device, '');
  assert.equal(findKvmObstacle(device), undefined);
  assert.equal(findKvmObstacle(directory), `${directory} cannot be opened (EISDIR)`);
});

test('if the VMM or its guest ends, the finding is "refused", with the reason and without earlier warnings', async () => {
  const warned = 'qemu: warning: host lacks a feature\nqemu: error: failed to set MSR 0x10a\nqemu: aborted';
  const refusals: [Error, RegExp][] = [
    [new VmmStartError(warned), /no kernel boots with it: qemu: error: failed to set MSR 0x10a$/u],
    [new VmmStartError('Could not access KVM kernel module'), /Could not access KVM kernel module$/u],
    [new VmmError('QMP query-cpu: QEMU closed the monitor'), /QMP query-cpu: QEMU closed the monitor$/u],
    [new BootEndedError('guest_panic'), /the guest kernel panicked while it booted$/u],
  ];
  for (const [error, reason] of refusals) {
    const finding = await tryFailing(error);
    assert.equal(finding.outcome, 'refused');
    assert.match('reason' in finding ? finding.reason : '', reason);
  }
});

test('an unsupported CPU level says nothing about KVM', async () => {
  assert.deepEqual(await tryFailing(new UnfitCpuError('x86-64-v3', ['avx2', 'fma'])), {
    outcome: 'unfit',
    reason: 'is x86-64-v3, but guests of this host cannot have avx2, fma',
  });
});

test('neither a timeout nor a host that cannot start anything says something about KVM', async () => {
  const open = [
    LATE,
    new VmmStartError('', { cause: LATE }),
    new AppError('disk_full', 'no room'),
    'no words',
  ];
  for (const error of open) assert.equal((await tryFailing(error)).outcome, 'unanswered', String(error));
});

test('an aborted attempt has no finding', async () => {
  const signal = AbortSignal.abort(new Error('the runner stops'));
  const boot = async (): Promise<never> => {
    throw new BootEndedError('vmm_lost');
  };
  await assert.rejects(tryKvm({ findObstacle: () => undefined, boot }, 10_000, signal), /the runner stops/u);
});
