/** Reads the usage that a VM's groups have counted, including that of processes that are gone. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface GroupUsage {
  cpuMs: number | undefined;
  /** Peak memory, including the page cache of its disks; limited like the VM. */
  memPeakBytes: number | undefined;
}

export function readGroupUsage(directories: readonly string[]): GroupUsage {
  const find = (file: string): string | undefined =>
    directories.map((directory) => findText(join(directory, file))).find((text) => text !== undefined);
  const nanoseconds = find('cpuacct.usage');
  const microseconds = /^usage_usec (\d+)$/mu.exec(find('cpu.stat') ?? '')?.[1];
  const peak = find('memory.max_usage_in_bytes') ?? find('memory.peak');
  return {
    cpuMs: toNumber(nanoseconds, 1_000_000) ?? toNumber(microseconds, 1000),
    memPeakBytes: toNumber(peak, 1),
  };
}

function toNumber(text: string | undefined, divisor: number): number | undefined {
  const value = Number(text ?? Number.NaN);
  return Number.isFinite(value) ? value / divisor : undefined;
}

function findText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return undefined;
  }
}
