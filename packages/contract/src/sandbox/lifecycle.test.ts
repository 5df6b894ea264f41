import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  ADMISSIONS,
  EVENT_REASONS,
  FINDINGS,
  FOUND,
  OPERATIONS,
  SANDBOX_EVENTS,
  SANDBOX_OPERATIONS,
  SANDBOX_REQUESTS,
  SANDBOX_STATES,
  STATUS_REASONS,
  TRANSITIONS,
  findAdmission,
  findTransition,
  isFinal,
  type EventOutcome,
  type RequestOutcome,
  type SandboxOperation,
  type SandboxState,
} from './lifecycle.ts';

const TRIGGERS = [...SANDBOX_REQUESTS, ...SANDBOX_EVENTS] as const;

/** Lists the states in which an operation can begin. */
function listStatesBefore(operation: SandboxOperation): SandboxState[] {
  return SANDBOX_STATES.filter((state) => {
    const transition = findTransition(state, OPERATIONS[operation].request);
    return transition.outcome === 'accept' && transition.operation === operation;
  });
}

/** Lists the states to which the success of an operation leads. */
function listStatesAfter(operation: SandboxOperation): SandboxState[] {
  const { success } = OPERATIONS[operation];
  return listStatesBefore(operation).map((state) => {
    const transition = success === null ? undefined : findTransition(state, success);
    return transition?.outcome === 'accept' ? transition.to : state;
  });
}

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
        const transition: RequestOutcome | EventOutcome = findTransition(state, trigger);
        if ('to' in transition) state = transition.to;
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
      assert.notEqual(
        findAdmission(operation, OPERATIONS[other].request),
        'go',
        `${other} during ${operation}`,
      );
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
  for (const operation of SANDBOX_OPERATIONS)
    for (const request of SANDBOX_REQUESTS)
      if (findAdmission(operation, request) === 'refuse')
        for (const state of listStatesAfter(operation))
          assert.equal(findTransition(state, request).outcome, 'refuse', `${request} ${operation}`);
});

test('only a hibernated sandbox can be resumed, and it cannot be hibernated again', () => {
  for (const state of SANDBOX_STATES)
    assert.equal(findTransition(state, 'resume').outcome === 'accept', state === 'hibernated', state);
  assert.equal(findTransition('hibernated', 'hibernate').outcome, 'refuse');
});

test('each operation begins by its own request, and its success is an event of each state in which it begins', () => {
  for (const operation of SANDBOX_OPERATIONS) {
    const { request, success } = OPERATIONS[operation];
    const before = listStatesBefore(operation);
    assert.ok(before.length > 0, operation);
    for (const state of SANDBOX_STATES) {
      const transition = findTransition(state, request);
      assert.equal(transition.outcome === 'accept', before.includes(state), `${state} ${request}`);
    }
    if (success === null) assert.deepEqual(listStatesAfter(operation), before);
    else
      for (const state of before) assert.equal(findTransition(state, success).outcome, 'accept', operation);
  }
});

test('an event carries a reason exactly when it ends the sandbox', () => {
  for (const state of SANDBOX_STATES)
    for (const event of SANDBOX_EVENTS) {
      const transition = findTransition(state, event);
      if (transition.outcome === 'accept')
        assert.equal(EVENT_REASONS[event].length > 0, isFinal(transition.to), `${state} ${event}`);
    }
  assert.deepEqual(new Set(Object.values(EVENT_REASONS).flat()), new Set(STATUS_REASONS));
});

test('what control finds is never an impossible event', () => {
  for (const state of SANDBOX_STATES)
    for (const finding of FINDINGS)
      for (const event of FOUND[state][finding])
        assert.notEqual(findTransition(state, event).outcome, 'impossible', `${state} ${finding}`);
});

test('only a use of a hibernated sandbox wakes it', () => {
  for (const state of SANDBOX_STATES)
    for (const request of SANDBOX_REQUESTS) {
      const transition = findTransition(state, request);
      const wakes = transition.outcome === 'refuse' && transition.wakes;
      assert.equal(wakes, state === 'hibernated' && request === 'use');
    }
});
