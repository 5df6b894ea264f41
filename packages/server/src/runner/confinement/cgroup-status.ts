import { listMissingLimits } from '../../lib/missing-limits.ts';
import type { CgroupStatus } from '../../lib/protocol/runner-protocol.ts';
import type { Controller } from './hierarchies.ts';

export interface CgroupFindings {
  controllers: readonly Controller[];
  /** Why a hierarchy could not be used. */
  problems: readonly string[];
  /** The reason to give where nothing is missing. */
  complete: string;
}

/** Names each limit that is not in force in the reason, for an operator. */
export function buildCgroupStatus({ controllers, problems, complete }: CgroupFindings): CgroupStatus {
  const found = [...new Set(controllers)].toSorted();
  const missing = listMissingLimits({ controllers: found });
  const fact =
    missing.length === 0
      ? complete
      : `no control group that can be used has the controller of: ${missing.join(', ')}`;
  return { controllers: found, reason: [fact, ...problems].join('; ') };
}
