/**
 * States of a sandbox and what each request does in each of them, as data. The driver, the tests and every
 * client that wants to know which button to grey out read this one table.
 *
 *                 started            hibernate (later version)
 *     creating ───────────► running ◄──────────────────────► hibernated
 *        │ start_failed        │ ended: asked for, or powered off from inside
 *        ▼                     ▼
 *      failed ◄──── lost ── destroyed
 *
 * `destroyed` and `failed` are final. An event that comes late (a boot that ends after its sandbox was destroyed)
 * is either ignored or answered by removing the VM; it never brings a sandbox back.
 */
export const SANDBOX_STATES = ['creating', 'running', 'hibernated', 'destroyed', 'failed'] as const;
export type SandboxState = (typeof SANDBOX_STATES)[number];

/** Asked for by a caller. `use` is everything that talks to the guest: exec, files. */
export const SANDBOX_REQUESTS = ['use', 'set_timeout', 'destroy'] as const;
export type SandboxRequest = (typeof SANDBOX_REQUESTS)[number];

/** Told by the runner, or found out by comparing with it. */
export const SANDBOX_EVENTS = ['started', 'start_failed', 'ended', 'lost'] as const;
export type SandboxEvent = (typeof SANDBOX_EVENTS)[number];

/** Shown in the record's `operation` while it is under way. */
export const SANDBOX_OPERATIONS = ['destroying'] as const;
export type SandboxOperation = (typeof SANDBOX_OPERATIONS)[number];

/** Why a sandbox is `destroyed` or `failed`. */
export const STATUS_REASONS = [
  'requested',
  'idle_timeout',
  'max_lifetime',
  'guest_shutdown',
  'guest_panic',
  'vm_lost',
  'create_failed',
  'control_restarted',
] as const;
export type StatusReason = (typeof STATUS_REASONS)[number];

export type Transition =
  | { outcome: 'accept'; to: SandboxState }
  /** The caller gets 409 `invalid_state`. */
  | { outcome: 'refuse' }
  /** An event with nothing left to do. */
  | { outcome: 'ignore' }
  /** A VM came up for a sandbox that has ended: it must be removed. */
  | { outcome: 'remove_vm' };

const REFUSE: Transition = { outcome: 'refuse' };
const IGNORE: Transition = { outcome: 'ignore' };
const REMOVE_VM: Transition = { outcome: 'remove_vm' };
const accept = (to: SandboxState): Transition => ({ outcome: 'accept', to });

const FINAL: Record<SandboxRequest | SandboxEvent, Transition> = {
  use: REFUSE,
  set_timeout: REFUSE,
  destroy: REFUSE,
  started: REMOVE_VM,
  start_failed: IGNORE,
  ended: IGNORE,
  lost: IGNORE,
};

export const TRANSITIONS: Record<SandboxState, Record<SandboxRequest | SandboxEvent, Transition>> = {
  creating: {
    use: REFUSE,
    set_timeout: accept('creating'),
    destroy: accept('destroyed'),
    started: accept('running'),
    start_failed: accept('failed'),
    ended: accept('failed'),
    lost: accept('failed'),
  },
  running: {
    use: accept('running'),
    set_timeout: accept('running'),
    destroy: accept('destroyed'),
    started: IGNORE,
    start_failed: IGNORE,
    ended: accept('destroyed'),
    lost: accept('failed'),
  },
  hibernated: {
    use: REFUSE,
    set_timeout: accept('hibernated'),
    destroy: accept('destroyed'),
    started: REMOVE_VM,
    start_failed: IGNORE,
    ended: IGNORE,
    lost: IGNORE,
  },
  destroyed: FINAL,
  failed: FINAL,
};

/** Requests that an operation under way does not stand in the way of. The others get 409 or wait for its end. */
export const ALLOWED_DURING: Record<SandboxOperation, readonly SandboxRequest[]> = {
  destroying: [],
};

/** What `trigger` does to a sandbox in `state`. */
export function findTransition(state: SandboxState, trigger: SandboxRequest | SandboxEvent): Transition {
  return TRANSITIONS[state][trigger];
}

/** True when the sandbox will never run again. */
export function isFinal(state: SandboxState): boolean {
  return state === 'destroyed' || state === 'failed';
}
