import { listMissingLimits } from '../../lib/missing-limits.ts';
import type { CgroupStatus } from '../../lib/protocol/runner-protocol.ts';
import type { Controller } from './hierarchies.ts';

export interface CgroupFindings {
  controllers: readonly Controller[];
  /** Reasons why hierarchies could not be used. */
  problems: readonly string[];
  /** The reason to report if nothing is missing. */
  complete: string;
}

/** Builds the status; its reason names each inactive limit for an operator. */
export function buildCgroupStatus({ controllers, problems, complete }: CgroupFindings): CgroupStatus {
  const found = [...new Set(controllers)].toSorted();
  const missing = listMissingLimits({ controllers: found });
  const fact =
    missing.length === 0
      ? complete
      : `no control group that can be used has the controller of: ${missing.join(', ')}`;
  return { controllers: found, reason: [fact, ...problems].join('; ') };
}
