/**
 * Time that nobody can set: CLOCK_MONOTONIC counts from the host's boot and is the same in all of its processes, so that
 * what one process measured another can go on with. Between two boots only the wall clock is left.
 */
import { readFileSync } from 'node:fs';
import { wallMs } from './fault-directory.ts';

export interface HostMoment {
  bootId: string;
  /** Milliseconds since that boot. */
  bootMs: number;
  /** Unix milliseconds; what is shown, and what counts across boots. */
  wallMs: number;
}

/** Changes with every boot of the host: what ran under another boot id runs no more. */
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
