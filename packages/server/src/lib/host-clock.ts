/**
 * Time that cannot be set: CLOCK_MONOTONIC counts from the host's boot and is the same in all processes of the host, so
 * one process can continue a measurement of another. Across boots only the wall clock can be compared.
 */
import { readFileSync } from 'node:fs';
import { wallMs } from './fault-directory.ts';

export interface HostMoment {
  bootId: string;
  /** Milliseconds since the boot of `bootId`. */
  bootMs: number;
  /** Unix milliseconds, for display and for comparison across boots. */
  wallMs: number;
}

/** Returns the boot id. It changes with every boot of the host: a process of another boot id no longer runs. */
export function hostBootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim();
}

const BOOT_ID = hostBootId();

export function bootMs(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}

export function hostMoment(): HostMoment {
  return { bootId: BOOT_ID, bootMs: bootMs(), wallMs: wallMs() };
}
