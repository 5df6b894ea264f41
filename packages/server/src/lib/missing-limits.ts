import type { CgroupStatus } from './protocol/runner-protocol.ts';

/** Controllers without which a sandbox can take all that the host has. */
const LIMITED = ['cpu', 'memory', 'pids'] as const;

/** Limits of sandboxes that are not in force. */
export function listMissingLimits({ controllers }: Pick<CgroupStatus, 'controllers'>): string[] {
  return LIMITED.filter((each) => !controllers.includes(each));
}
