import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  SANDBOX_EVENTS,
  SANDBOX_REQUESTS,
  SANDBOX_STATES,
  TRANSITIONS,
  findTransition,
  isFinal,
  type SandboxState,
} from './lifecycle.ts';

const TRIGGERS = [...SANDBOX_REQUESTS, ...SANDBOX_EVENTS] as const;

test('every state has an answer to every request and event', () => {
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

test('an event is never refused: what has happened has happened', () => {
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
