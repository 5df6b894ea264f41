/**
 * Reads the kernel's counts of a TAP's traffic: every frame of the guest, even those that the rules then drop. The
 * counts live as long as the TAP, which serves one guest only, so they survive this process and every change of a
 * policy.
 */
import { readFileSync } from 'node:fs';

/** The devices of this process's network namespace, independent of the mount at /sys. */
const DEVICES_PATH = '/proc/net/dev';
/** Columns after the name: eight for frames that the host received, eight for frames that it sent. */
const RECEIVED_COLUMN = 0;
const SENT_COLUMN = 8;

export interface TapTraffic {
  fromGuestBytes: number;
  toGuestBytes: number;
}

/** Returns undefined when there is no such TAP. */
export function readTapTraffic(tap: string): TapTraffic | undefined {
  return parseTraffic(readFileSync(DEVICES_PATH, 'latin1'), tap);
}

export function parseTraffic(devices: string, tap: string): TapTraffic | undefined {
  for (const line of devices.split('\n')) {
    const [name = '', counts] = line.split(':');
    if (counts === undefined || name.trim() !== tap) continue;
    const columns = counts.trim().split(/\s+/u).map(Number);
    const fromGuestBytes = columns[RECEIVED_COLUMN];
    const toGuestBytes = columns[SENT_COLUMN];
    return fromGuestBytes === undefined || toGuestBytes === undefined
      ? undefined
      : { fromGuestBytes, toGuestBytes };
  }
  return undefined;
}
