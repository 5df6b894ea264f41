/** The actions that a sandbox allows now, taken from the tables of the contract that the service itself obeys. */
import {
  findAdmission,
  findTransition,
  isFinal,
  OPERATIONS,
  SANDBOX_OPERATIONS,
  SANDBOX_STATES,
  type SandboxOperation,
  type SandboxRequest,
  type SandboxState,
} from '../../../../../contract/src/sandbox/lifecycle.ts';
import type { IconName } from '../../../ui/Icon.tsx';

/** The requests for which the page has a button or an entry of a menu. */
export type ActionId = Exclude<SandboxRequest, 'use' | 'set_egress'>;

export interface OfferedAction {
  id: ActionId;
  label: string;
  icon: IconName;
  isAllowed: boolean;
  /** Why it is not allowed, or that it waits for an operation. */
  note: string | undefined;
}

interface Life {
  status: string;
  operation: string | null;
}

const ACTIONS: readonly (readonly [id: ActionId, label: string, icon: IconName])[] = [
  ['fork', 'Fork', 'fork'],
  ['snapshot', 'Snapshot', 'snapshot'],
  ['hibernate', 'Hibernate', 'pause'],
  ['resume', 'Resume', 'play'],
  ['rollback', 'Roll back', 'rewind'],
  ['configure', 'Settings', 'settings'],
  ['destroy', 'Destroy', 'trash'],
];

const GERUNDS: Record<SandboxOperation, string> = {
  forking: 'being forked',
  snapshotting: 'being saved as a snapshot',
  hibernating: 'hibernating',
  resuming: 'resuming',
  rolling_back: 'being rolled back',
  destroying: 'being destroyed',
};

/**
 * Lists the actions of the page. An action that is not allowed now is in the list with the reason. Absent are those that no
 * reader expects: all of a sandbox that has ended, and of hibernate and resume the one that the state excludes.
 */
export function listActions(life: Life): OfferedAction[] {
  const state = SANDBOX_STATES.find((known) => known === life.status);
  if (state === undefined || isFinal(state)) return [];
  const operation = SANDBOX_OPERATIONS.find((known) => known === life.operation) ?? null;
  const canHibernate = judge(state, operation, 'hibernate').isAllowed;
  const canResume = judge(state, operation, 'resume').isAllowed;
  const hidden = canResume || (!canHibernate && state === 'hibernated') ? 'hibernate' : 'resume';
  return ACTIONS.filter(([id]) => id !== hidden).map(([id, label, icon]) => {
    const { isAllowed, note } = judge(state, operation, id);
    return { id, label, icon, isAllowed, note };
  });
}

/** Returns whether a guest takes calls now: commands, terminals and files. A sleeping one with `autoHibernate` wakes. */
export function canUse({ status, operation, autoHibernate }: Life & { autoHibernate: boolean }): boolean {
  const state = SANDBOX_STATES.find((known) => known === status);
  if (state === undefined) return false;
  const during = SANDBOX_OPERATIONS.find((known) => known === operation) ?? null;
  if (findAdmission(during, 'use') === 'refuse') return false;
  const effect = findTransition(stateAfter(state, during), 'use');
  return effect.outcome === 'accept' || (effect.wakes && autoHibernate);
}

/** Describes the operation that is under way, for example "being forked". */
export function describeOperation(operation: string | null): string | undefined {
  const known = SANDBOX_OPERATIONS.find((one) => one === operation);
  return known === undefined ? operation?.replaceAll('_', ' ') : GERUNDS[known];
}

function judge(
  state: SandboxState,
  operation: SandboxOperation | null,
  request: SandboxRequest,
): { isAllowed: boolean; note: string | undefined } {
  const admission = findAdmission(operation, request);
  const during = operation === null ? '' : GERUNDS[operation];
  if (admission === 'refuse') return { isAllowed: false, note: `Not while the sandbox is ${during}.` };
  // A request that waits is judged again when the operation has ended.
  const judged = admission === 'wait' ? stateAfter(state, operation) : state;
  if (findTransition(judged, request).outcome === 'refuse')
    return { isAllowed: false, note: explainRefusal(judged) };
  return {
    isAllowed: true,
    note: admission === 'wait' ? `Begins when the sandbox is no longer ${during}.` : undefined,
  };
}

/** Returns the state in which an operation leaves a sandbox if it succeeds. */
function stateAfter(state: SandboxState, operation: SandboxOperation | null): SandboxState {
  const success = operation === null ? null : OPERATIONS[operation].success;
  if (success === null) return state;
  const effect = findTransition(state, success);
  return effect.outcome === 'accept' ? effect.to : state;
}

function explainRefusal(state: SandboxState): string {
  if (state === 'creating') return 'The sandbox is still being created.';
  if (state === 'hibernated') return 'The sandbox is hibernated. Resume it first.';
  if (state === 'running') return 'The sandbox is already running.';
  return 'The sandbox has ended.';
}
