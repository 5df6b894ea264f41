/**
 * Life of a sandbox as data: its states, and the effect of each request and event. Control takes every new state from
 * these tables. Tests, and every client that must know which button to grey out, read the same tables.
 *
 *     create, restore, fork
 *        │                        hibernate: saved
 *        ▼         started       ┌─────────────────►
 *     creating ───────────► running                hibernated
 *        │                    │  ◄─────────────────┘   │
 *        │                    │    resume: started     │
 *        │ removed            │ removed, ended         │ removed
 *        ├────────────────────┴────────────────────────┴───────────► destroyed
 *        │
 *        │ start_failed, ended, lost     (running: start_failed, lost)
 *        └────────────────────┴────────────────────────────────────► failed
 *
 * `destroyed` and `failed` are final. A late event (a boot that ends after its sandbox was destroyed) is either ignored
 * or answered by removing the VM; it never brings a sandbox back.
 *
 * A request changes no state. It is done at once, or it begins an operation, whose success is an event. Only events
 * change the state:
 *
 *     TRANSITIONS    state × request    accepted: at once, or by an operation; or refused
 *                    state × event      the new state; or ignored, the VM removed, impossible
 *     EVENT_REASONS  event              the reasons that an event may carry
 *     OPERATIONS     operation          the events of its success, its failure, and a death of control in its middle
 *     FOUND          state × finding    the events that control derives from what the runner has
 *     ADMISSIONS     operation × request   a sandbox has at most one operation at a time: a request meanwhile proceeds,
 *                                       waits for its end, or is refused
 */
export const SANDBOX_STATES = ['creating', 'running', 'hibernated', 'destroyed', 'failed'] as const;
export type SandboxState = (typeof SANDBOX_STATES)[number];

/** State of a new sandbox: of a create, a restore, or a child of a fork. */
export const FIRST_STATE: SandboxState = 'creating';

/**
 * Requests of a caller. `use` is everything that talks to the guest: exec, files, sessions, ports. `configure` changes
 * the settings that only control knows, `set_egress` the network policy or the credentials. When a sandbox has been idle
 * or has reached its lifetime, control makes the request `destroy` or, for idleness with `auto_hibernate`, `hibernate`
 * itself.
 */
export const SANDBOX_REQUESTS = [
  'use',
  'configure',
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
 * Events that an operation or the runner reports, or that control detects by comparing its state with the runner's.
 *
 * - `started`: the VM runs, of a create or of a resume.
 * - `start_failed`: there will be no VM, or its caller was answered that there is none.
 * - `saved`: the runner holds a hibernation in place of the VM.
 * - `removed`: control had the VM removed, for a caller or because a time limit was reached.
 * - `ended`: the VM ended in order, by its guest or by a removal whose outcome control did not commit.
 * - `lost`: the VM ended otherwise.
 */
export const SANDBOX_EVENTS = ['started', 'start_failed', 'saved', 'removed', 'ended', 'lost'] as const;
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

/** Why a sandbox is `destroyed` or `failed`. */
export const STATUS_REASONS = [
  'requested',
  'idle_timeout',
  'max_lifetime',
  'expires_at',
  'guest_shutdown',
  'guest_panic',
  'vm_lost',
  'create_failed',
  'control_restarted',
] as const;
export type StatusReason = (typeof STATUS_REASONS)[number];

export type RequestOutcome =
  /** `operation`: what the request begins; null if it is done at once. */
  | { outcome: 'accept'; operation: SandboxOperation | null }
  /** The caller receives 409 `invalid_state`. With `wakes`, a sandbox with `auto_hibernate` is first resumed instead. */
  | { outcome: 'refuse'; wakes: boolean };

export type EventOutcome =
  | { outcome: 'accept'; to: SandboxState }
  /** Nothing is left to do. */
  | { outcome: 'ignore' }
  /** A VM came up for a sandbox that has ended: it must be removed. */
  | { outcome: 'remove_vm' }
  /** Only a bug can report it. */
  | { outcome: 'impossible' };

export type Transitions = Record<SandboxRequest, RequestOutcome> & Record<SandboxEvent, EventOutcome>;

const AT_ONCE: RequestOutcome = { outcome: 'accept', operation: null };
const REFUSE: RequestOutcome = { outcome: 'refuse', wakes: false };
const WAKE: RequestOutcome = { outcome: 'refuse', wakes: true };
const IGNORE: EventOutcome = { outcome: 'ignore' };
const REMOVE_VM: EventOutcome = { outcome: 'remove_vm' };
const IMPOSSIBLE: EventOutcome = { outcome: 'impossible' };
const begin = (operation: SandboxOperation): RequestOutcome => ({ outcome: 'accept', operation });
const to = (state: SandboxState): EventOutcome => ({ outcome: 'accept', to: state });

const FINAL: Transitions = {
  use: REFUSE,
  configure: REFUSE,
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
  removed: IMPOSSIBLE,
  ended: IGNORE,
  lost: IGNORE,
};

export const TRANSITIONS: Record<SandboxState, Transitions> = {
  creating: {
    use: REFUSE,
    configure: AT_ONCE,
    set_egress: REFUSE,
    fork: REFUSE,
    snapshot: REFUSE,
    hibernate: REFUSE,
    resume: REFUSE,
    rollback: REFUSE,
    destroy: begin('destroying'),
    started: to('running'),
    start_failed: to('failed'),
    saved: IMPOSSIBLE,
    removed: to('destroyed'),
    ended: to('failed'),
    lost: to('failed'),
  },
  running: {
    use: AT_ONCE,
    configure: AT_ONCE,
    set_egress: AT_ONCE,
    fork: begin('forking'),
    snapshot: begin('snapshotting'),
    hibernate: begin('hibernating'),
    resume: REFUSE,
    rollback: begin('rolling_back'),
    destroy: begin('destroying'),
    started: IGNORE,
    // The start was committed, but the answer to the commit was lost: the caller was answered that the create failed.
    start_failed: to('failed'),
    saved: to('hibernated'),
    removed: to('destroyed'),
    ended: to('destroyed'),
    lost: to('failed'),
  },
  hibernated: {
    use: WAKE,
    configure: AT_ONCE,
    set_egress: AT_ONCE,
    fork: REFUSE,
    snapshot: REFUSE,
    hibernate: REFUSE,
    resume: begin('resuming'),
    rollback: REFUSE,
    destroy: begin('destroying'),
    started: to('running'),
    start_failed: IMPOSSIBLE,
    saved: IGNORE,
    removed: to('destroyed'),
    // Late reports on the VM that was saved.
    ended: IGNORE,
    lost: IGNORE,
  },
  destroyed: FINAL,
  failed: FINAL,
};

/**
 * The reasons with which an event ends a sandbox. `ended` has those of `removed` for a removal whose outcome was not
 * committed.
 */
export const EVENT_REASONS: Record<SandboxEvent, readonly StatusReason[]> = {
  started: [],
  start_failed: ['create_failed', 'control_restarted'],
  saved: [],
  removed: ['requested', 'idle_timeout', 'max_lifetime', 'expires_at'],
  ended: ['requested', 'idle_timeout', 'max_lifetime', 'expires_at', 'guest_shutdown'],
  lost: ['guest_panic', 'vm_lost'],
};

/**
 * Ways in which an operation ends without success. `as_found`: by FOUND, once it is known what the runner has; mostly
 * the sandbox stays in its state, as if nothing had been requested. `repeated`: control requests the same again, under
 * the id that is in the record, until the outcome is known.
 */
export type Unsuccessful = 'as_found' | 'repeated';

export interface OperationRule {
  /** The request that it carries out. */
  request: SandboxRequest;
  /** The event of its success; null if the sandbox stays in its state. */
  success: SandboxEvent | null;
  /** The runner refused it, or its VM was missing. */
  failure: Unsuccessful;
  /** The runner gave no answer, or control died in its middle. */
  cutOff: Unsuccessful;
}

/**
 * A create, a restore and a child of a fork are no operations of an existing sandbox. They succeed with `started` and
 * fail with `start_failed`; a death of control in their middle is `start_failed` with `control_restarted`.
 */
export const OPERATIONS: Record<SandboxOperation, OperationRule> = {
  forking: { request: 'fork', success: null, failure: 'as_found', cutOff: 'as_found' },
  snapshotting: { request: 'snapshot', success: null, failure: 'as_found', cutOff: 'as_found' },
  hibernating: { request: 'hibernate', success: 'saved', failure: 'as_found', cutOff: 'as_found' },
  resuming: { request: 'resume', success: 'started', failure: 'as_found', cutOff: 'as_found' },
  rolling_back: { request: 'rollback', success: null, failure: 'as_found', cutOff: 'repeated' },
  destroying: { request: 'destroy', success: 'removed', failure: 'as_found', cutOff: 'as_found' },
};

/**
 * The runner may have of a sandbox: its VM; the hibernation that its record names; the end of its VM, which control has
 * not committed; or nothing.
 */
export const FINDINGS = ['vm', 'hibernation', 'end', 'nothing'] as const;
export type Finding = (typeof FINDINGS)[number];

/**
 * The events that control derives from a finding while no operation runs. Without one the sandbox stays in its state.
 * Of several, the finding itself or the reason says which.
 */
export const FOUND: Record<SandboxState, Record<Finding, readonly SandboxEvent[]>> = {
  // No create is under way: control has died in its middle. A VM is removed first.
  creating: {
    vm: ['start_failed'],
    hibernation: ['start_failed'],
    end: ['start_failed', 'ended', 'lost'],
    nothing: ['start_failed'],
  },
  // `start_failed` only if the caller of the create was answered that it failed.
  running: {
    vm: ['start_failed'],
    hibernation: ['saved'],
    end: ['start_failed', 'ended', 'lost'],
    nothing: ['start_failed', 'lost'],
  },
  hibernated: { vm: ['started'], hibernation: [], end: ['ended', 'lost'], nothing: [] },
  destroyed: { vm: ['started'], hibernation: [], end: ['ended', 'lost'], nothing: [] },
  failed: { vm: ['started'], hibernation: [], end: ['ended', 'lost'], nothing: [] },
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
const BESIDE_THE_GUEST: During = { ...EACH_IN_ITS_TURN, use: 'go', configure: 'go' };
/** The guest exists again after the operation. */
const BEFORE_THE_GUEST: During = { ...EACH_IN_ITS_TURN, use: 'wait', configure: 'go' };
/** The guest no longer exists after the operation. */
const AFTER_THE_GUEST: During = {
  use: 'refuse',
  configure: 'go',
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
  destroying: { ...AFTER_THE_GUEST, configure: 'wait' },
};

/** Returns the effect of `trigger` on a sandbox in `state`. */
export function findTransition<T extends SandboxRequest | SandboxEvent>(
  state: SandboxState,
  trigger: T,
): Transitions[T] {
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
