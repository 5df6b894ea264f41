/**
 * Writes kernel settings under /proc/sys/net. Writes are synchronous: the thread that opens a setting decides its
 * namespace, and a write is only a few bytes of memory.
 */
import { AppError } from '@coppice/contract';
import { readFileSync, writeFileSync } from 'node:fs';

/**
 * Settings of the host's end of a TAP. arp_ignore 2: the kernel answers only for the gateway and only to senders within
 * the /30. Else the guest could find every address of the host, and fill its neighbour table with invented senders.
 * disable_ipv6: the guest has no IPv6, so its gateway has none either.
 */
const TAP_SETTINGS: readonly (readonly [string, string])[] = [
  ['ipv4/conf/*/forwarding', '1'],
  ['ipv4/conf/*/arp_ignore', '2'],
  ['ipv4/conf/*/accept_source_route', '0'],
  ['ipv4/conf/*/accept_redirects', '0'],
  ['ipv4/conf/*/send_redirects', '0'],
  ['ipv4/conf/*/route_localnet', '0'],
  ['ipv4/conf/*/proxy_arp', '0'],
  ['ipv6/conf/*/disable_ipv6', '1'],
];

export function writeTapSettings(tapName: string): void {
  for (const [pattern, value] of TAP_SETTINGS) writeSetting(pattern.replace('*', tapName), value);
}

/** Enables IPv4 forwarding. Returns true when it was off before. */
export function ensureForwarding(): boolean {
  const path = '/proc/sys/net/ipv4/ip_forward';
  if (readFileSync(path, 'latin1').trim() !== '0') return false;
  writeSetting('ipv4/ip_forward', '1');
  return true;
}

function writeSetting(name: string, value: string): void {
  try {
    writeFileSync(`/proc/sys/net/${name}`, value);
  } catch (error) {
    // A host without IPv6 has no such settings and needs none.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT' && name.startsWith('ipv6/')) return;
    throw new AppError('internal', `setting net.${name.replaceAll('/', '.')} to ${value}`, { cause: error });
  }
}
