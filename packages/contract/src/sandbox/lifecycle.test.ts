import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  ADMISSIONS,
  REQUEST_OF,
  SANDBOX_EVENTS,
  SANDBOX_OPERATIONS,
  SANDBOX_REQUESTS,
  SANDBOX_STATES,
  TRANSITIONS,
  findAdmission,
  findTransition,
  isFinal,
  type SandboxOperation,
  type SandboxState,
} from './lifecycle.ts';

const TRIGGERS = [...SANDBOX_REQUESTS, ...SANDBOX_EVENTS] as const;

test('every state defines a transition for every request and event', () => {
  for (const state of SANDBOX_STATES) {
    assert.deepEqual(Object.keys(TRANSITIONS[state]).toSorted(), [...TRIGGERS].toSorted(), state);
  }
});

test('a caller is never ignored: requests are accepted or refused', () => {
  for (const state of SANDBOX_STATES) {
    for (const request of SANDBOX_REQUESTS) {
      assert.match(findTransition(state, request).outcome, /^(accept|refuse)$/, `${state} ${request}`);
    }
  }
});

test('an event is never refused, because it has already happened', () => {
  for (const state of SANDBOX_STATES) {
    for (const event of SANDBOX_EVENTS) {
      assert.notEqual(findTransition(state, event).outcome, 'refuse', `${state} ${event}`);
    }
  }
});

test('no sequence of requests and events leads out of a final state', () => {
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...TRIGGERS), { maxLength: 30 }), (triggers) => {
      let state: SandboxState = 'creating';
      let ended: SandboxState | undefined;
      for (const trigger of triggers) {
        const transition = findTransition(state, trigger);
        if (transition.outcome === 'accept') state = transition.to;
        if (ended !== undefined) assert.equal(state, ended);
        if (isFinal(state)) ended = state;
      }
    }),
  );
});

test('a sandbox that has ended cannot be destroyed again', () => {
  assert.equal(findTransition('destroyed', 'destroy').outcome, 'refuse');
});

test('a VM that starts after its sandbox was destroyed is removed', () => {
  assert.equal(findTransition('destroyed', 'started').outcome, 'remove_vm');
});

test('every operation says whether each request proceeds, waits or is refused', () => {
  for (const operation of SANDBOX_OPERATIONS)
    assert.deepEqual(Object.keys(ADMISSIONS[operation]).toSorted(), [...SANDBOX_REQUESTS].toSorted());
  for (const request of SANDBOX_REQUESTS) assert.equal(findAdmission(null, request), 'go');
});

test('two operations never run at the same time', () => {
  for (const operation of SANDBOX_OPERATIONS)
    for (const other of SANDBOX_OPERATIONS)
      assert.notEqual(findAdmission(operation, REQUEST_OF[other]), 'go', `${other} during ${operation}`);
});

test('a destroy during any operation waits for its end', () => {
  for (const operation of SANDBOX_OPERATIONS) assert.equal(findAdmission(operation, 'destroy'), 'wait');
});

test('a fork of a sandbox is refused while and after it is hibernated or destroyed', () => {
  for (const state of ['hibernated', 'destroyed', 'failed'] as const)
    assert.equal(findTransition(state, 'fork').outcome, 'refuse');
  for (const operation of ['hibernating', 'destroying'] as const)
    assert.equal(findAdmission(operation, 'fork'), 'refuse');
});

test('a request that is refused during an operation would also be refused after it', () => {
  const after: Record<SandboxOperation, SandboxState> = {
    forking: 'running',
    snapshotting: 'running',
    hibernating: 'hibernated',
    resuming: 'running',
    rolling_back: 'running',
    destroying: 'destroyed',
  };
  for (const operation of SANDBOX_OPERATIONS)
    for (const request of SANDBOX_REQUESTS)
      if (findAdmission(operation, request) === 'refuse')
        assert.equal(findTransition(after[operation], request).outcome, 'refuse', `${request} ${operation}`);
});

test('only a hibernated sandbox can be resumed, and it cannot be hibernated again', () => {
  for (const state of SANDBOX_STATES)
    assert.equal(findTransition(state, 'resume').outcome === 'accept', state === 'hibernated', state);
  assert.equal(findTransition('hibernated', 'hibernate').outcome, 'refuse');
});
