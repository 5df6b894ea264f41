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
  fromGuestPackets: number;
  toGuestPackets: number;
}

/** Returns undefined when there is no such TAP. */
export function readTapTraffic(tap: string): TapTraffic | undefined {
  return readAllTraffic().get(tap);
}

/** Reads the counts of all devices, by their names. */
export function readAllTraffic(): Map<string, TapTraffic> {
  return parseTraffic(readFileSync(DEVICES_PATH, 'latin1'));
}

export function parseTraffic(devices: string): Map<string, TapTraffic> {
  const traffic = new Map<string, TapTraffic>();
  for (const line of devices.split('\n')) {
    const [name = '', counts = ''] = line.split(':');
    const columns = counts.trim().split(/\s+/u).map(Number);
    const [fromGuestBytes, fromGuestPackets] = columns.slice(RECEIVED_COLUMN);
    const [toGuestBytes, toGuestPackets] = columns.slice(SENT_COLUMN);
    if (fromGuestBytes === undefined || fromGuestPackets === undefined) continue;
    if (toGuestBytes === undefined || toGuestPackets === undefined) continue;
    traffic.set(name.trim(), { fromGuestBytes, toGuestBytes, fromGuestPackets, toGuestPackets });
  }
  return traffic;
}
