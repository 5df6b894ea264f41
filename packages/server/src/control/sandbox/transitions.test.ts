/** The real driver, with a fake runner, does what the contract's tables say: in each cell, and in no other way. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import {
  AppError,
  FINDINGS,
  FOUND,
  OPERATIONS,
  SANDBOX_EVENTS,
  SANDBOX_OPERATIONS,
  SANDBOX_REQUESTS,
  SANDBOX_STATES,
  TRANSITIONS,
  type Finding,
  type SandboxEvent,
  type SandboxOperation,
  type SandboxRecord,
  type SandboxRequest,
  type SandboxState,
} from '@coppice/contract';
import type { Database } from '../db/database.ts';
import { startHarness, waitFor, type Answer, type ControlHarness } from '../testing/control-harness.ts';
import { forceState } from '../testing/sandbox-row.ts';
import { assertByTable, beginStateLog, isEvent, readStates } from '../testing/state-log.ts';

let harness: ControlHarness;
let db: Database & AsyncDisposable;
before(async () => {
  harness = await startHarness({ requestsPerSecond: 0, runnerOutageDeadlineMs: 300 });
  db = harness.openDatabase();
  await beginStateLog(db);
});
after(async () => {
  await db[Symbol.asyncDispose]();
  await harness[Symbol.asyncDispose]();
});
afterEach(async () => {
  resetHooks();
  await assertByTable(db);
});

const NOTHING = (): void => undefined;

function resetHooks(): void {
  harness.runner.captures.reset();
  harness.runner.onCreate = NOTHING;
  harness.runner.onDelete = NOTHING;
  harness.runner.onEgress = NOTHING;
}

const post = (id: string, what: string, body?: object): Promise<Answer> =>
  harness.call('POST', `/v1/runs/${id}/${what}`, body === undefined ? {} : { body });
const destroy = (id: string): Promise<Answer> => harness.call('DELETE', `/v1/runs/${id}`);
const becomes = (id: string, state: SandboxState): Promise<SandboxRecord> =>
  harness.waitForRecord(id, ({ status }) => status === state);

/** Waits until control has compared its records with the runner twice, so that it has seen what is there now. */
async function reconciled(): Promise<void> {
  const count = (): number => harness.runner.requests.filter((request) => request === 'GET /roster').length;
  const first = count();
  await waitFor('two rounds of the reconciler', () => count() >= first + 3);
}

/** Creates a sandbox, and does `act` while it is being created. Returns its id when the create is answered. */
async function createWith(act: (id: string) => Promise<void>): Promise<string> {
  let created = '';
  harness.runner.onCreate = async (id) => {
    created = id;
    await act(id);
  };
  await harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
  harness.runner.onCreate = NOTHING;
  return created;
}

function refuse(): never {
  throw new AppError('capacity', 'the fake refuses');
}

/** Ends the VM as the runner would, and waits until control has committed it. */
async function endIn(
  id: string,
  reason: 'guest_shutdown' | 'guest_panic',
  state: SandboxState,
): Promise<void> {
  harness.runner.endVm(id, reason);
  await becomes(id, state);
}

/** Commits a change in the place of control, which then finds its own commit refused, as if its answer was lost. */
async function commitUnheard(id: string, change: Parameters<typeof forceState>[0]): Promise<void> {
  await db.updateTable('sandboxes').set(forceState(change)).where('id', '=', id).execute();
}

/** Inserts a record `creating` without a create, as a killed control leaves it, and starts the next control. */
async function leaveCreating(meanwhile: (id: string) => void = NOTHING): Promise<string> {
  const { id: of } = await harness.create();
  const { labels: _, ...row } = await db
    .selectFrom('sandboxes')
    .selectAll()
    .where('id', '=', of)
    .executeTakeFirstOrThrow();
  const id = `run${of.slice(3, -6)}abcdef`;
  await harness.stopControl();
  await db
    .insertInto('sandboxes')
    .values({ ...row, id, labels: '{}', status: 'creating' })
    .execute();
  meanwhile(id);
  await harness.startControl();
  return id;
}

/** Makes a sandbox that is in a state and stays there. */
const IN: Record<SandboxState, () => Promise<string>> = {
  creating: async () => {
    const { promise, resolve } = Promise.withResolvers<string>();
    harness.runner.onCreate = (id) => {
      resolve(id);
      return gate.promise;
    };
    void harness.call('POST', '/v1/runs', { body: { image: 'node:22-slim' } });
    return promise;
  },
  running: async () => (await harness.create()).id,
  hibernated: async () => {
    const { id } = await harness.create();
    assert.equal((await post(id, 'hibernate')).status, 200);
    return id;
  },
  destroyed: async () => {
    const { id } = await harness.create();
    assert.equal((await destroy(id)).status, 200);
    return id;
  },
  failed: async () => {
    const { id } = await harness.create();
    await endIn(id, 'guest_panic', 'failed');
    return id;
  },
};

/** Opened at the end of a test: what hangs in the fake runner continues. */
let gate = Promise.withResolvers<void>();
afterEach(() => {
  gate.resolve();
  gate = Promise.withResolvers();
});

type Scenario = () => Promise<string>;
const IMPOSSIBLE = 'impossible';

/** For each state and event: makes a sandbox of that state receive the event, and returns its id. */
const EVENTS: Record<SandboxState, Record<SandboxEvent, Scenario | typeof IMPOSSIBLE>> = {
  creating: {
    started: IN.running,
    start_failed: () => createWith(refuse),
    saved: IMPOSSIBLE,
    removed: () => createWith(async (id) => void (await destroy(id))),
    ended: () => createWith((id) => endIn(id, 'guest_shutdown', 'failed')),
    lost: () => createWith((id) => endIn(id, 'guest_panic', 'failed')),
  },
  running: {
    // The resume is committed, but its answer is lost: it runs all the same.
    started: async () => {
      const id = await IN.hibernated();
      harness.runner.captures.onRestore = () =>
        commitUnheard(id, { status: 'running', hibernation_id: null, hibernated_at: null });
      assert.equal((await post(id, 'resume')).status, 200);
      await reconciled();
      return id;
    },
    start_failed: async () => {
      const id = await createWith((created) => commitUnheard(created, { status: 'running' }));
      await becomes(id, 'failed');
      return id;
    },
    saved: IN.hibernated,
    removed: IN.destroyed,
    ended: async () => {
      const id = await IN.running();
      await endIn(id, 'guest_shutdown', 'destroyed');
      return id;
    },
    lost: IN.failed,
  },
  hibernated: {
    started: async () => {
      const id = await IN.hibernated();
      assert.equal((await post(id, 'resume')).status, 200);
      return id;
    },
    start_failed: IMPOSSIBLE,
    // The hibernation is committed, but its answer is lost.
    saved: async () => {
      const id = await IN.running();
      harness.runner.captures.onHibernate = (_, hibernation_id) =>
        commitUnheard(id, { status: 'hibernated', hibernation_id, hibernated_at: Date.now() });
      assert.equal((await post(id, 'hibernate')).status, 503);
      await reconciled();
      return id;
    },
    removed: async () => {
      const id = await IN.hibernated();
      assert.equal((await destroy(id)).status, 200);
      return id;
    },
    ended: () => lateEnd('hibernated', 'guest_shutdown'),
    lost: () => lateEnd('hibernated', 'guest_panic'),
  },
  destroyed: {
    started: () => createWith(async (id) => void (await destroy(id))),
    start_failed: () =>
      createWith(async (id) => {
        await destroy(id);
        refuse();
      }),
    saved: () => savedAfter('guest_shutdown', 'destroyed'),
    removed: IMPOSSIBLE,
    ended: () => lateEnd('destroyed', 'guest_shutdown'),
    lost: () => lateEnd('destroyed', 'guest_panic'),
  },
  failed: {
    started: () => createWith((id) => endIn(id, 'guest_panic', 'failed')),
    start_failed: () =>
      createWith(async (id) => {
        await endIn(id, 'guest_panic', 'failed');
        refuse();
      }),
    saved: () => savedAfter('guest_panic', 'failed'),
    removed: IMPOSSIBLE,
    ended: () => lateEnd('failed', 'guest_shutdown'),
    lost: () => lateEnd('failed', 'guest_panic'),
  },
};

async function lateEnd(state: SandboxState, reason: 'guest_shutdown' | 'guest_panic'): Promise<string> {
  const id = await IN[state]();
  harness.runner.endVm(id, reason);
  await waitFor('the event to be acknowledged', () => !harness.runner.ends.has(id));
  return id;
}

/** The VM ends while it is being saved. */
async function savedAfter(reason: 'guest_shutdown' | 'guest_panic', state: SandboxState): Promise<string> {
  const { id } = await harness.create();
  harness.runner.captures.onHibernate = () => endIn(id, reason, state);
  assert.equal((await post(id, 'hibernate')).status, 409);
  return id;
}

for (const state of SANDBOX_STATES)
  for (const event of SANDBOX_EVENTS) {
    const transition = TRANSITIONS[state][event];
    const scenario = EVENTS[state][event];
    assert.equal(scenario === IMPOSSIBLE, transition.outcome === 'impossible', `${state} ${event}`);
    if (scenario === IMPOSSIBLE) continue;
    test(`${state}, ${event}: ${transition.outcome === 'accept' ? transition.to : transition.outcome}`, async () => {
      const id = await scenario();
      const changes = await readStates(db, id);
      const states = changes.map(({ to }) => to);
      if (transition.outcome === 'accept') {
        const isThere = changes.some(
          ({ from, ...change }) => from === state && isEvent({ from, ...change }, event),
        );
        assert.ok(isThere, JSON.stringify(changes));
      } else assert.equal(states.at(-1), state, JSON.stringify(changes));
      if (transition.outcome === 'remove_vm')
        await waitFor('the VM to be removed', () => !harness.runner.vms.has(id));
    });
  }

/** Sends each request of the table. */
const REQUESTS: Record<SandboxRequest, (id: string) => Promise<Answer>> = {
  use: (id) => post(id, 'exec', { command: 'true' }),
  configure: (id) => harness.call('PATCH', `/v1/runs/${id}`, { body: { timeout: 900 } }),
  set_egress: (id) =>
    harness.call('PUT', `/v1/runs/${id}/network`, { body: { network: { allow: ['example.com'] } } }),
  fork: (id) => post(id, 'fork', { count: 1 }),
  snapshot: (id) => post(id, 'snapshot', {}),
  hibernate: (id) => post(id, 'hibernate'),
  resume: (id) => post(id, 'resume'),
  rollback: async (id) => post(id, 'rollback', { snapshot_id: snapshots.get(id) ?? `snap${'0'.repeat(20)}` }),
  destroy,
};
const snapshots = new Map<string, string>();

/** Makes the fake runner call `hook` before it does its part of an operation. */
function hookOperations(hook: (id: string) => Promise<void>): void {
  const { captures } = harness.runner;
  captures.onFork = hook;
  captures.onSnapshot = hook;
  captures.onHibernate = hook;
  captures.onRestore = hook;
  captures.onRollback = hook;
  harness.runner.onDelete = hook;
}

async function prepare(state: SandboxState, request: SandboxRequest): Promise<string> {
  const needsSnapshot = request === 'rollback' && state !== 'creating';
  if (!needsSnapshot) return IN[state]();
  // A rollback names a snapshot of the sandbox, which must be taken while it runs.
  const { id } = await harness.create();
  const { body } = await post(id, 'snapshot', {});
  snapshots.set(id, (body as { id: string }).id);
  if (state === 'hibernated') await post(id, 'hibernate');
  if (state === 'destroyed') await destroy(id);
  if (state === 'failed') await endIn(id, 'guest_panic', 'failed');
  return id;
}

for (const state of SANDBOX_STATES)
  for (const request of SANDBOX_REQUESTS) {
    const transition = TRANSITIONS[state][request];
    const { outcome } = transition;
    const operation = transition.outcome === 'accept' ? transition.operation : null;
    test(`${state}, ${request}: ${outcome}${operation === null ? '' : `, ${operation}`}`, async () => {
      const id = await prepare(state, request);
      const shown = new Set<string | null>();
      hookOperations(async (of) => {
        if (of === id)
          shown.add(((await harness.call('GET', `/v1/runs/${id}`)).body as SandboxRecord).operation);
      });
      const { status, body } = await REQUESTS[request](id);
      if (outcome === 'accept') assert.ok(status < 300, `${status} ${JSON.stringify(body)}`);
      // Without a snapshot a rollback is refused for its absence.
      else if (request === 'rollback' && !snapshots.has(id)) assert.ok(status === 404 || status === 409);
      else assert.deepEqual([status, body.error.code], [409, 'invalid_state'], JSON.stringify(body));
      assert.deepEqual([...shown], operation === null ? [] : [operation]);
      const success = operation === null ? null : OPERATIONS[operation].success;
      const last = (await readStates(db, id)).at(-1);
      if (success === null) assert.equal(last?.to, state);
      else
        assert.ok(last?.from === state && isEvent({ ...last, from: state }, success), JSON.stringify(last));
    });
  }

test('a use wakes a sandbox with auto_hibernate in exactly the states in which the table says so', async () => {
  for (const state of ['hibernated', 'destroyed'] as const) {
    const { id } = await harness.create({ auto_hibernate: true });
    if (state === 'hibernated') await post(id, 'hibernate');
    else await destroy(id);
    const use = TRANSITIONS[state].use;
    assert.ok(use.outcome === 'refuse');
    assert.equal((await REQUESTS.use(id)).status, use.wakes ? 200 : 409);
  }
});

/** The state in which each operation runs in these tests. */
const DURING: Record<SandboxOperation, SandboxState> = {
  forking: 'running',
  snapshotting: 'running',
  hibernating: 'running',
  resuming: 'hibernated',
  rolling_back: 'running',
  destroying: 'running',
};

for (const operation of SANDBOX_OPERATIONS) {
  const { request } = OPERATIONS[operation];
  const state = DURING[operation];
  test(`${operation} that the runner refuses leaves the sandbox ${state}`, async () => {
    const id = await prepare(state, request);
    hookOperations(async () => refuse());
    assert.equal((await REQUESTS[request](id)).status, 429);
    await reconciled();
    const { status, operation: shown } = (await harness.call('GET', `/v1/runs/${id}`)).body;
    assert.deepEqual([status, shown], [state, null]);
  });
}

for (const operation of SANDBOX_OPERATIONS) {
  const { request, success, cutOff } = OPERATIONS[operation];
  const state = DURING[operation];
  const transition = success === null ? undefined : TRANSITIONS[state][success];
  const after = transition?.outcome === 'accept' ? transition.to : state;
  test(`${operation} that was done without an answer leaves the sandbox ${after}, ${cutOff}`, async () => {
    const { runner } = harness;
    const id = await prepare(state, request);
    runner.captures.beforeAnswer = () => void runner.stop();
    runner.onDelete = (of) => {
      if (of !== id) return;
      runner.endVm(id, 'destroyed');
      void runner.stop();
    };
    assert.ok((await REQUESTS[request](id)).status >= 500);
    resetHooks();
    const asked = runner.requests.length;
    await runner.start();
    await harness.waitForRecord(id, (record) => record.status === after && record.operation === null);
    const isRepeated = runner.requests.slice(asked).includes(`POST /vms/${id}/${request}`);
    assert.equal(isRepeated, cutOff === 'repeated');
    await reconciled();
    const last = (await readStates(db, id)).at(-1);
    const events = Object.values(FOUND[state]).flat();
    const isFound = last !== undefined && events.some((event) => isEvent({ ...last, from: state }, event));
    assert.ok(success === null ? last?.to === state : isFound, JSON.stringify(last));
  });
}

/** Changes what the runner has of a sandbox, while control is stopped. */
const MAKE: Record<Finding, (id: string) => void> = {
  vm: (id) => {
    const [other] = harness.runner.vms.values();
    assert.ok(other);
    harness.runner.vms.set(id, { ...other, id });
  },
  hibernation: (id) => {
    const [other] = harness.runner.captures.saved.values();
    harness.runner.vms.delete(id);
    if (other !== undefined)
      harness.runner.captures.saved.set(hibOf(id), { ...other, id: hibOf(id), vm_id: id });
  },
  end: (id) => void harness.runner.endVm(id, 'guest_shutdown'),
  nothing: (id) => void harness.runner.vms.delete(id),
};

const hibOf = (id: string): string => `hib${id.slice(3)}`;

for (const state of SANDBOX_STATES)
  for (const finding of FINDINGS) {
    const events = FOUND[state][finding];
    test(`${state}, and the runner has: ${finding}; ${events.join(' or ') || 'it stays'}`, async () => {
      // Others, whose VM and capture the fake copies.
      await IN.running();
      await IN.hibernated();
      let id = '';
      if (state === 'creating') id = await leaveCreating(MAKE[finding]);
      else {
        id = await IN[state]();
        await harness.stopControl();
        if (state === 'running' && finding === 'hibernation')
          await db
            .updateTable('sandboxes')
            .set({ hibernation_id: hibOf(id) })
            .where('id', '=', id)
            .execute();
        MAKE[finding](id);
        await harness.startControl();
      }
      await reconciled();
      const last = (await readStates(db, id)).at(-1);
      const from = last?.from ?? null;
      const isStill = last?.to === state && !(from === state);
      const isFound =
        last !== undefined &&
        from === state &&
        events.some((event) => isEvent({ ...last, from: state }, event));
      const changes = events.filter((event) => TRANSITIONS[state][event].outcome === 'accept');
      const staysAnyway = changes.length === 0 || (state === 'running' && finding === 'vm');
      assert.ok(staysAnyway ? isStill : isFound, JSON.stringify(last));
      if (events.includes('started') && state !== 'hibernated') assert.ok(!harness.runner.vms.has(id));
    });
  }
