import { z } from 'zod';
import type { CpuSetting } from '../../lib/cpu-setting.ts';
import { buildAskedCpu, Cpu, findMissing } from '../vm/cpu.ts';
import { bootOnce, withVm, type BootOptions } from './boot-once.ts';

/** Of guests under KVM. */
export const KvmCpus = z.object({
  /** All that guests of this host can have. */
  host: Cpu,
  /** What new ones get. */
  chosen: Cpu,
});
export type KvmCpus = z.infer<typeof KvmCpus>;

/** This host lacks features of the level that is set. */
export class UnfitCpuError extends Error {
  constructor(setting: CpuSetting, missing: readonly string[]) {
    super(`is ${setting}, but guests of this host cannot have ${missing.join(', ')}`);
    this.name = 'UnfitCpuError';
  }
}

/**
 * Finds the CPUs that guests can have, and boots a kernel with the one that new VMs get. QEMU is asked, as the host's own
 * list holds what KVM does not hand on. Throws {@link UnfitCpuError} before that kernel is booted.
 */
export async function bootWithKvm(
  options: Omit<BootOptions, 'accelerator' | 'cpu'>,
  setting: CpuSetting,
): Promise<KvmCpus> {
  const accelerator = 'kvm';
  options.signal?.throwIfAborted();
  const cpus = await withVm({ ...options, accelerator }, async (vm) => ({
    host: await vm.expandCpu(buildAskedCpu('host')),
    chosen: await vm.expandCpu(buildAskedCpu(setting)),
  }));
  const missing = findMissing(cpus.chosen, cpus.host);
  if (missing.length > 0) throw new UnfitCpuError(setting, missing);
  await bootOnce({ ...options, accelerator, cpu: cpus.chosen });
  return cpus;
}
