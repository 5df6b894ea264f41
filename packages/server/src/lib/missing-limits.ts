import type { CgroupStatus } from './protocol/runner-protocol.ts';

/** Controllers without which a sandbox can use up a resource of the host. */
const LIMITED = ['cpu', 'memory', 'pids'] as const;

/** Returns the limits of sandboxes that are not in force. */
export function listMissingLimits({ controllers }: Pick<CgroupStatus, 'controllers'>): string[] {
  return LIMITED.filter((each) => !controllers.includes(each));
}
