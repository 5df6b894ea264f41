/**
 * States of a sandbox and the effect of each request in each state, as data. The driver, the tests and every client
 * that must know which button to grey out read this one table.
 *
 *                 started             hibernate, saved
 *     creating ───────────► running ◄──────────────────────► hibernated
 *        │ start_failed        │ ended: requested,  resume      │
 *        ▼                     │ or powered off     started     │ destroy
 *      failed ◄──── lost ──────┴──────────► destroyed ◄─────────┘
 *
 * `destroyed` and `failed` are final. A late event (a boot that ends after its sandbox was destroyed) is either ignored
 * or answered by removing the VM; it never brings a sandbox back.
 *
 * A request that takes time is an operation. A sandbox has at most one operation at a time. The second table says
 * whether another request proceeds in parallel with it, waits for its end, or is refused.
 */
export const SANDBOX_STATES = ['creating', 'running', 'hibernated', 'destroyed', 'failed'] as const;
export type SandboxState = (typeof SANDBOX_STATES)[number];

/**
 * Requests of a caller. `use` is everything that talks to the guest: exec, files, sessions, ports. With
 * `auto_hibernate` a use of a hibernated sandbox first resumes it. `set_egress` changes the network policy or the
 * credentials.
 */
export const SANDBOX_REQUESTS = [
  'use',
  'set_timeout',
  'set_egress',
  'fork',
  'snapshot',
  'hibernate',
  'resume',
  'rollback',
  'destroy',
] as const;
export type SandboxRequest = (typeof SANDBOX_REQUESTS)[number];

/**
 * Events that the runner reports, or that control detects by comparing its state with the runner's. `saved`: the runner
 * holds a hibernation in place of the VM.
 */
export const SANDBOX_EVENTS = ['started', 'start_failed', 'saved', 'ended', 'lost'] as const;
export type SandboxEvent = (typeof SANDBOX_EVENTS)[number];

/** Values of the record's `operation` while an operation runs. */
export const SANDBOX_OPERATIONS = [
  'forking',
  'snapshotting',
  'hibernating',
  'resuming',
  'rolling_back',
  'destroying',
] as const;
export type SandboxOperation = (typeof SANDBOX_OPERATIONS)[number];

/** The request that each operation carries out. */
export const REQUEST_OF: Record<SandboxOperation, SandboxRequest> = {
  forking: 'fork',
  snapshotting: 'snapshot',
  hibernating: 'hibernate',
  resuming: 'resume',
  rolling_back: 'rollback',
  destroying: 'destroy',
};

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
  /** The caller receives 409 `invalid_state`. */
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
  set_egress: REFUSE,
  fork: REFUSE,
  snapshot: REFUSE,
  hibernate: REFUSE,
  resume: REFUSE,
  rollback: REFUSE,
  destroy: REFUSE,
  started: REMOVE_VM,
  start_failed: IGNORE,
  saved: IGNORE,
  ended: IGNORE,
  lost: IGNORE,
};

export const TRANSITIONS: Record<SandboxState, Record<SandboxRequest | SandboxEvent, Transition>> = {
  creating: {
    use: REFUSE,
    set_timeout: accept('creating'),
    set_egress: REFUSE,
    fork: REFUSE,
    snapshot: REFUSE,
    hibernate: REFUSE,
    resume: REFUSE,
    rollback: REFUSE,
    destroy: accept('destroyed'),
    started: accept('running'),
    start_failed: accept('failed'),
    saved: IGNORE,
    ended: accept('failed'),
    lost: accept('failed'),
  },
  running: {
    use: accept('running'),
    set_timeout: accept('running'),
    set_egress: accept('running'),
    fork: accept('running'),
    snapshot: accept('running'),
    hibernate: accept('hibernated'),
    resume: REFUSE,
    rollback: accept('running'),
    destroy: accept('destroyed'),
    started: IGNORE,
    start_failed: IGNORE,
    saved: accept('hibernated'),
    ended: accept('destroyed'),
    lost: accept('failed'),
  },
  hibernated: {
    use: REFUSE,
    set_timeout: accept('hibernated'),
    set_egress: accept('hibernated'),
    fork: REFUSE,
    snapshot: REFUSE,
    hibernate: REFUSE,
    resume: accept('running'),
    rollback: REFUSE,
    destroy: accept('destroyed'),
    started: accept('running'),
    start_failed: IGNORE,
    saved: IGNORE,
    ended: IGNORE,
    lost: IGNORE,
  },
  destroyed: FINAL,
  failed: FINAL,
};

/** Treatment of a request that arrives during an operation. A request that waits is judged again afterwards. */
export type Admission = 'go' | 'wait' | 'refuse';

type During = Record<SandboxRequest, Admission>;

const EACH_IN_ITS_TURN = {
  set_egress: 'wait',
  fork: 'wait',
  snapshot: 'wait',
  hibernate: 'wait',
  resume: 'refuse',
  rollback: 'wait',
  destroy: 'wait',
} as const;

/** The guest keeps running, except for a short pause. */
const BESIDE_THE_GUEST: During = { ...EACH_IN_ITS_TURN, use: 'go', set_timeout: 'go' };
/** The guest exists again after the operation. */
const BEFORE_THE_GUEST: During = { ...EACH_IN_ITS_TURN, use: 'wait', set_timeout: 'go' };
/** The guest no longer exists after the operation. */
const AFTER_THE_GUEST: During = {
  use: 'refuse',
  set_timeout: 'go',
  set_egress: 'wait',
  fork: 'refuse',
  snapshot: 'refuse',
  hibernate: 'refuse',
  resume: 'refuse',
  rollback: 'refuse',
  destroy: 'wait',
};

export const ADMISSIONS: Record<SandboxOperation, During> = {
  forking: BESIDE_THE_GUEST,
  snapshotting: BESIDE_THE_GUEST,
  hibernating: { ...AFTER_THE_GUEST, resume: 'wait' },
  resuming: BEFORE_THE_GUEST,
  rolling_back: BEFORE_THE_GUEST,
  destroying: { ...AFTER_THE_GUEST, set_timeout: 'wait' },
};

/** Returns the effect of `trigger` on a sandbox in `state`. */
export function findTransition(state: SandboxState, trigger: SandboxRequest | SandboxEvent): Transition {
  return TRANSITIONS[state][trigger];
}

/** Returns the treatment of `request` during `operation`; null means that no operation runs. */
export function findAdmission(operation: SandboxOperation | null, request: SandboxRequest): Admission {
  return operation === null ? 'go' : ADMISSIONS[operation][request];
}

/** Whether a state is final: the sandbox never runs again. */
export function isFinal(state: SandboxState): boolean {
  return state === 'destroyed' || state === 'failed';
}
