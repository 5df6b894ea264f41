import { isFinal, type SandboxState } from '@coppice/contract';
import { sql } from 'kysely';

export const LIVE_STATES = ['creating', 'running', 'hibernated'] as const satisfies readonly SandboxState[];

/** The condition of the indexes of live sandboxes, word for word: PostgreSQL uses one only if the query implies it. */
export const IS_LIVE = sql<boolean>`sandboxes.status IN ('creating', 'running', 'hibernated')`;

export function areLive(statuses: readonly SandboxState[]): boolean {
  return !statuses.some(isFinal);
}
