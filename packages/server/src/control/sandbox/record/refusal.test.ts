import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  findAdmission,
  findTransition,
  isFinal,
  SANDBOX_OPERATIONS,
  SANDBOX_REQUESTS,
  SANDBOX_STATES,
  type SandboxOperation,
  type SandboxRequest,
  type SandboxState,
} from '@coppice/contract';
import { buildRefusal, type Refused } from './refusal.ts';

/** The state in which each operation is under way. */
const DURING: Record<SandboxOperation, SandboxState> = {
  forking: 'running',
  snapshotting: 'running',
  hibernating: 'running',
  resuming: 'hibernated',
  rolling_back: 'running',
  destroying: 'running',
};

function textOf(request: SandboxRequest, refused: Partial<Refused>): string {
  const error = buildRefusal(request, {
    status: 'running',
    status_reason: null,
    operation: null,
    ...refused,
  });
  assert.deepEqual([error.code, error.details], ['invalid_state', { status: refused.status ?? 'running' }]);
  return error.message;
}

/** Everything that the tables of the contract refuse. */
function* listRefusals(): Generator<{ request: SandboxRequest; refused: Partial<Refused>; state: string }> {
  for (const request of SANDBOX_REQUESTS) {
    for (const status of SANDBOX_STATES)
      if (findTransition(status, request).outcome === 'refuse')
        yield { request, refused: { status }, state: status };
    for (const operation of SANDBOX_OPERATIONS)
      if (findAdmission(operation, request) === 'refuse')
        yield { request, refused: { status: DURING[operation], operation }, state: operation };
  }
}

test('each refusal names the state, fits into 200 bytes, and contains no identifier of the code', () => {
  for (const { request, refused, state } of listRefusals()) {
    const text = textOf(request, refused);
    assert.ok(text.startsWith(`the sandbox is ${state}`), text);
    assert.ok(
      Buffer.byteLength(JSON.stringify({ error: { code: 'invalid_state', message: text } })) <= 200,
      text,
    );
    assert.doesNotMatch(text, /"|\buse\b|set_egress|configure/);
  }
});

test('a refusal advises a resume only where it is accepted and helps', () => {
  for (const { request, refused } of listRefusals()) {
    const isAdvised = /resume it/.test(textOf(request, refused));
    const isHibernated = refused.status === 'hibernated' && refused.operation === undefined;
    const willBe = refused.operation === 'hibernating';
    const helps = (isHibernated || willBe) && request !== 'hibernate';
    assert.equal(isAdvised, helps, textOf(request, refused));
  }
});

test('a refusal advises auto_hibernate only for requests that it would serve', () => {
  for (const { request, refused } of listRefusals())
    if (textOf(request, refused).includes('auto_hibernate')) assert.equal(request, 'use');
  assert.match(textOf('use', { status: 'hibernated' }), /auto_hibernate/);
});

test('a refusal for an ended sandbox advises another sandbox, except for a destroy', () => {
  for (const { request, refused } of listRefusals())
    if (isFinal(refused.status ?? 'running'))
      assert.equal(/create another one/.test(textOf(request, refused)), request !== 'destroy');
  assert.equal(
    textOf('destroy', { status: 'destroyed', status_reason: 'idle_timeout' }),
    'the sandbox is destroyed already (idle_timeout)',
  );
});
