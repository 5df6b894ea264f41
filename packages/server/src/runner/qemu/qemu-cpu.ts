/**
 * Asks QEMU for the CPU that a setting means on this host. The result is QEMU's static model: `base`, a CPU without any
 * feature, plus all added features. It means the same features on every host and in every QEMU that knows them.
 */
import { z } from 'zod';
import type { CpuSetting } from '../../lib/cpu-setting.ts';
import { Cpu } from '../vm/cpu.ts';

/** A QEMU CPU model and its properties, for `query-cpu-model-expansion`. */
interface CpuModel {
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

export function buildCpuModel(setting: CpuSetting): CpuModel {
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
