/**
 * The CPU of guests. Under KVM it is QEMU's static model: `base`, a CPU without any feature, plus all added features.
 * It means the same features on every host and in every QEMU that knows them. So saved state is restored with the
 * features that it was saved with, and a host can be compared with them before a VM starts.
 *
 * Under emulation it is `max`, all that QEMU can emulate, less the features removed from it: the same on every host.
 */
import { z } from 'zod';
import type { CpuSetting } from '../../lib/cpu-setting.ts';

/** Features are `true`; vendor, family, model and levels have values. */
export const Cpu = z.record(
  z.string().regex(/^[a-z0-9][a-z0-9._-]*$/u),
  // QEMU separates properties by commas and has no way to quote one.
  z.union([z.literal(true), z.int().nonnegative(), z.string().regex(/^[^,\n]*$/u)]),
);
export type Cpu = z.infer<typeof Cpu>;

/** A QEMU CPU model and its properties, for `query-cpu-model-expansion`. */
export interface AskedCpu {
  name: string;
  props: Readonly<Record<string, boolean | string>>;
}

/**
 * Features withheld from guests: nested virtualization and enclaves, which widen what a guest can reach; a fifth
 * page-table level, which only costs time; and what a copy of a VM loses: performance counters, and async page faults,
 * whose page the guest would wait for in vain.
 */
const WITHHELD = [
  'vmx',
  'svm',
  'sgx',
  'la57',
  'pmu',
  'pdcm',
  'perfctr-core',
  'perfctr-nb',
  'kvm-asyncpf-int',
];

/** Added to Westmere, which has the features of level v2, and AES. The psABI calls `abm` LZCNT. */
const V3 = ['avx', 'avx2', 'bmi1', 'bmi2', 'f16c', 'fma', 'abm', 'movbe', 'xsave'];
const V4 = [...V3, 'avx512f', 'avx512bw', 'avx512cd', 'avx512dq', 'avx512vl'];
const LEVELS: Readonly<Record<Exclude<CpuSetting, 'host'>, readonly string[]>> = {
  'x86-64-v2': [],
  'x86-64-v3': V3,
  'x86-64-v4': V4,
};

export function buildAskedCpu(setting: CpuSetting): AskedCpu {
  // `migratable` omits features that the saved state of a CPU does not hold, such as the invariant TSC.
  if (setting === 'host') return { name: 'host', props: { migratable: true, ...all(WITHHELD, false) } };
  // Without a version the model would include features that depend on microcode.
  return {
    name: 'Westmere-v1',
    props: { 'model-id': setting, x2apic: true, ...all(LEVELS[setting], true) },
  };
}

function all(names: readonly string[], value: boolean): Record<string, boolean> {
  return Object.fromEntries(names.map((name) => [name, value]));
}

const Expansion = z.object({
  model: z.object({
    name: z.literal('base'),
    props: z.record(z.string(), z.union([z.boolean(), z.number(), z.string()])),
  }),
});

/** Parses QEMU's answer to `query-cpu-model-expansion` with the type `static`. */
export function parseExpansion(answer: unknown): Cpu {
  const { props } = Expansion.parse(answer).model;
  const cpu = Object.entries(props)
    .filter(([, value]) => value !== false)
    .map(
      ([name, value]) =>
        [name, typeof value === 'string' ? value.replaceAll(/[,\n]/gu, ' ') : value] as const,
    )
    // Template keys depend on the order.
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
  return Cpu.parse(Object.fromEntries(cpu));
}

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
