import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { DeadlineError } from '../../lib/waiting/deadline.ts';
import { SharedSession } from './agent-session.ts';

/** Short, but far longer than a test needs to continue in another caller. */
const SHORT_MS = 50;
const LONG_MS = 10_000;

class StandInSession {
  closed = false;
  close(): void {
    this.closed = true;
  }
}

/** Openings that the test settles one by one. */
function startOpenings(): {
  shared: SharedSession<StandInSession>;
  openings: PromiseWithResolvers<StandInSession>[];
} {
  const openings: PromiseWithResolvers<StandInSession>[] = [];
  const shared = new SharedSession<StandInSession>(() => {
    const opening = Promise.withResolvers<StandInSession>();
    openings.push(opening);
    return opening.promise;
  });
  return { shared, openings };
}

test('a caller whose deadline passes does not end the opening for the others', async () => {
  const { shared, openings } = startOpenings();
  const hasty = shared.get(SHORT_MS);
  const patient = shared.get(LONG_MS);
  await assert.rejects(hasty, DeadlineError);
  const session = new StandInSession();
  openings[0]?.resolve(session);
  assert.equal(await patient, session);
  assert.equal(await shared.get(SHORT_MS), session);
  assert.equal(openings.length, 1);
});

test('a caller that joins an opening late does not fail with its deadline but joins the next opening', async () => {
  const { shared, openings } = startOpenings();
  const hasty = assert.rejects(shared.get(SHORT_MS), DeadlineError);
  await hasty;
  const late = shared.get(LONG_MS);
  openings[0]?.reject(new DeadlineError('the agent', LONG_MS));
  while (openings.length < 2) await setImmediate();
  const session = new StandInSession();
  openings[1]?.resolve(session);
  assert.equal(await late, session);
});

test('callers that have left start no further opening', async () => {
  const { shared, openings } = startOpenings();
  await assert.rejects(shared.get(SHORT_MS), DeadlineError);
  openings[0]?.reject(new DeadlineError('the agent', LONG_MS));
  await setImmediate();
  assert.equal(openings.length, 1);
});

test('any other failure of an opening fails all waiting callers, and the next caller starts a new one', async () => {
  const { shared, openings } = startOpenings();
  const callers = [shared.get(LONG_MS), shared.get(LONG_MS)];
  openings[0]?.reject(new Error('the VM ended'));
  for (const caller of callers) await assert.rejects(caller, /the VM ended/u);
  const next = shared.get(LONG_MS);
  const session = new StandInSession();
  openings[1]?.resolve(session);
  assert.equal(await next, session);
  shared.close();
  assert.ok(session.closed);
  void shared.get(SHORT_MS).catch(() => undefined);
  assert.equal(openings.length, 3);
});
