import { z } from 'zod';
import type { CpuSetting } from '../../lib/cpu-setting.ts';
import { Cpu, findMissing } from '../vm/cpu.ts';
import { bootOnce, withVm, type BootOptions } from './boot-once.ts';

/** The CPUs of guests under KVM. */
export const KvmCpus = z.object({
  /** All features that guests of this host can have. */
  host: Cpu,
  /** The CPU of new VMs. */
  chosen: Cpu,
});
export type KvmCpus = z.infer<typeof KvmCpus>;

/** Thrown when this host lacks features of the configured CPU level. */
export class UnfitCpuError extends Error {
  constructor(setting: CpuSetting, missing: readonly string[]) {
    super(`is ${setting}, but guests of this host cannot have ${missing.join(', ')}`);
    this.name = 'UnfitCpuError';
  }
}

/**
 * Determines the CPUs that guests can have, and boots a kernel with the CPU of new VMs. It asks the VMM, because the
 * host's own CPU flags include features that KVM does not expose. Throws {@link UnfitCpuError} before that kernel
 * boots.
 */
export async function bootWithKvm(
  options: Omit<BootOptions, 'accelerator' | 'cpu'>,
  setting: CpuSetting,
): Promise<KvmCpus> {
  const accelerator = 'kvm';
  options.signal?.throwIfAborted();
  const cpus = await withVm({ ...options, accelerator }, async (vm) => ({
    host: await vm.resolveCpu('host'),
    chosen: await vm.resolveCpu(setting),
  }));
  const missing = findMissing(cpus.chosen, cpus.host);
  if (missing.length > 0) throw new UnfitCpuError(setting, missing);
  await bootOnce({ ...options, accelerator, cpu: cpus.chosen });
  return cpus;
}
