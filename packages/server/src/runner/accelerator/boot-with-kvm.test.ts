import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { CpuSetting } from '../../lib/cpu-setting.ts';
import type { Cpu } from '../vm/cpu.ts';
import type { VmHandle, VmLaunch, Vmm } from '../vm/vmm.ts';
import type { BootPlace } from './boot-once.ts';
import { bootWithKvm, UnfitCpuError } from './boot-with-kvm.ts';

const HOST: Cpu = { vendor: 'GenuineIntel', avx: true, avx2: true };
const LEVELS: Readonly<Record<string, Cpu>> = {
  'x86-64-v3': { vendor: 'GenuineIntel', avx: true },
  'x86-64-v4': { vendor: 'GenuineIntel', avx: true, avx512f: true },
};

class BootedError extends Error {}

/** A VMM on the host above. It refuses to boot a VM with a given CPU, and records the shape of each boot. */
class AskingVmm {
  readonly shapes: VmLaunch['shape'][] = [];
  kills = 0;

  async boot({ shape }: VmLaunch): Promise<VmHandle> {
    this.shapes.push(shape);
    if (shape.cpu !== undefined) throw new BootedError();
    const handle: Pick<VmHandle, 'resolveCpu' | 'kill'> = {
      resolveCpu: async (setting: CpuSetting) => LEVELS[setting] ?? HOST,
      kill: async () => void (this.kills += 1),
    };
    return handle as VmHandle;
  }
}

function newPlace(t: TestContext, vmm: AskingVmm): BootPlace {
  const directory = mkdtempSync(join(tmpdir(), 'boot-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  const uid = process.getuid?.() ?? 0;
  return { vmm: vmm as unknown as Vmm, machine: 'm', directory: join(directory, 'vm'), uid };
}

test('the kernel boots with the CPU of sandboxes, as the VMM resolves it', async (t) => {
  for (const [setting, cpu] of [
    ['host', HOST],
    ['x86-64-v3', LEVELS['x86-64-v3']],
  ] as const) {
    const vmm = new AskingVmm();
    await assert.rejects(bootWithKvm({ ...newPlace(t, vmm), timeoutMs: 1000 }, setting), BootedError);
    assert.deepEqual(
      vmm.shapes.map((shape) => shape.cpu),
      [undefined, cpu],
    );
    assert.equal(vmm.kills, 1);
  }
});

test('an unsupported CPU level is refused, with its missing features, before a kernel boots with it', async (t) => {
  const vmm = new AskingVmm();
  await assert.rejects(
    bootWithKvm({ ...newPlace(t, vmm), timeoutMs: 1000 }, 'x86-64-v4'),
    (error) =>
      error instanceof UnfitCpuError && /^is x86-64-v4, but .* cannot have avx512f$/u.test(error.message),
  );
  assert.deepEqual([vmm.shapes.length, vmm.kills], [1, 1]);
});
