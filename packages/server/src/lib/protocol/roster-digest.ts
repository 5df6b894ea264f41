import { createHash } from 'node:crypto';
import type { VmInfo } from './runner-protocol.ts';

/** Returns a hash of the VMs and their states, in any order, by which a runner and control compare their lists. */
export function digestRoster(vms: readonly Pick<VmInfo, 'id' | 'state'>[]): string {
  const lines = vms.map(({ id, state }) => `${id} ${state}\n`).toSorted();
  return createHash('sha256').update(lines.join('')).digest('hex');
}
