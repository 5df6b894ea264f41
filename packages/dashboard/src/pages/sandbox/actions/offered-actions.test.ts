import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findAdmission,
  findTransition,
  SANDBOX_OPERATIONS,
  SANDBOX_STATES,
} from '../../../../../contract/src/sandbox/lifecycle.ts';
import { canUse, listActions } from './offered-actions.ts';

function allowed(status: string, operation: string | null = null): string[] {
  return listActions({ status, operation })
    .filter(({ isAllowed }) => isAllowed)
    .map(({ id }) => id);
}

test('a running sandbox offers everything except resume', () => {
  assert.deepEqual(allowed('running'), ['fork', 'snapshot', 'hibernate', 'rollback', 'configure', 'destroy']);
  assert.ok(listActions({ status: 'running', operation: null }).every(({ id }) => id !== 'resume'));
});

test('a hibernated sandbox offers resume, settings and destroy, and explains the others', () => {
  assert.deepEqual(allowed('hibernated'), ['resume', 'configure', 'destroy']);
  const fork = listActions({ status: 'hibernated', operation: null }).find(({ id }) => id === 'fork');
  assert.equal(fork?.note, 'The sandbox is hibernated. Resume it first.');
});

test('a sandbox that is being created can be changed and destroyed', () => {
  assert.deepEqual(allowed('creating'), ['configure', 'destroy']);
});

test('a sandbox that has ended, or has an unknown state, offers nothing', () => {
  for (const status of ['destroyed', 'failed', 'migrating'])
    assert.deepEqual(listActions({ status, operation: null }), []);
});

test('a request that waits for an operation is judged by the state after it', () => {
  assert.deepEqual(allowed('running', 'hibernating'), ['resume', 'configure', 'destroy']);
  assert.deepEqual(allowed('running', 'forking'), allowed('running'));
  assert.deepEqual(allowed('hibernated', 'resuming'), [
    'fork',
    'snapshot',
    'hibernate',
    'rollback',
    'configure',
    'destroy',
  ]);
  assert.deepEqual(allowed('running', 'destroying'), []);
});

test('in every state and operation, exactly the requests that the tables accept at once are offered at once', () => {
  for (const status of SANDBOX_STATES)
    for (const operation of [null, ...SANDBOX_OPERATIONS])
      for (const action of listActions({ status, operation })) {
        const admission = findAdmission(operation, action.id);
        const isAccepted = findTransition(status, action.id).outcome === 'accept';
        if (admission !== 'wait')
          assert.equal(
            action.isAllowed,
            admission === 'go' && isAccepted,
            `${status} ${operation} ${action.id}`,
          );
        if (!action.isAllowed) assert.ok(action.note, `${status} ${operation} ${action.id} has no reason`);
      }
});

test('calls reach a running guest, and wake one that hibernates by itself', () => {
  const life = { status: 'running', operation: null, autoHibernate: false };
  assert.equal(canUse(life), true);
  assert.equal(canUse({ ...life, operation: 'forking' }), true);
  assert.equal(canUse({ ...life, operation: 'hibernating' }), false);
  assert.equal(canUse({ ...life, status: 'hibernated' }), false);
  assert.equal(canUse({ ...life, status: 'hibernated', autoHibernate: true }), true);
  assert.equal(canUse({ ...life, status: 'hibernated', operation: 'resuming' }), true);
  assert.equal(canUse({ ...life, status: 'creating', autoHibernate: true }), false);
  assert.equal(canUse({ ...life, status: 'destroyed', autoHibernate: true }), false);
});
