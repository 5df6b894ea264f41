/**
 * The CPU of guests. Under KVM it lists all features, by QEMU's names for them. It means the same on every host. So
 * saved state is restored with the features that it was saved with, and a host can be compared with them before a VM
 * starts. Under emulation it is all that can be emulated, less the features removed from it: the same on every host.
 */
import { z } from 'zod';

/** Features are `true`; vendor, family, model and levels have values. */
export const Cpu = z.record(
  z.string().regex(/^[a-z0-9][a-z0-9._-]*$/u),
  // QEMU separates properties by commas and has no way to quote one.
  z.union([z.literal(true), z.int().nonnegative(), z.string().regex(/^[^,\n]*$/u)]),
);
export type Cpu = z.infer<typeof Cpu>;

/**
 * Features that slow down an emulated guest. With `erms` or `fsrm` a kernel and a C library copy by `rep movsb`, which
 * is emulated byte by byte. With `smap` and `smep`, copies between the kernel and a program need translations of their
 * own. `la57` adds a page-table level. The registers of `pku` and `mpx` are saved and loaded at each context switch.
 */
export const EMULATED_CPU: Cpu = {
  erms: 'off',
  fsrm: 'off',
  la57: 'off',
  mpx: 'off',
  pku: 'off',
  smap: 'off',
  smep: 'off',
};

/** Returns the features of `cpu` that the host lacks, and the vendor if it differs: guest kernels choose code by it. */
export function findMissing(cpu: Cpu, host: Cpu): string[] {
  const features = Object.keys(cpu).filter((name) => cpu[name] === true && host[name] !== true);
  const vendor = cpu['vendor'] === host['vendor'] ? [] : [`vendor ${cpu['vendor']}`];
  return [...vendor, ...features.toSorted()];
}
