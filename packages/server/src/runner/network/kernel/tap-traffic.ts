/**
 * What has passed a TAP, as the kernel counts it: every frame of the guest, those that the rules then drop too. The counts
 * live as long as the TAP, which is one guest's, so they survive this process and every change of a policy.
 */
import { readFileSync } from 'node:fs';

/** Of this process's network namespace, whatever is mounted at /sys. */
const DEVICES_PATH = '/proc/net/dev';
/** Columns behind the name: eight of what the host has received, eight of what it has sent. */
const RECEIVED_COLUMN = 0;
const SENT_COLUMN = 8;

export interface TapTraffic {
  fromGuestBytes: number;
  toGuestBytes: number;
}

/** Undefined when there is no such TAP. */
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
