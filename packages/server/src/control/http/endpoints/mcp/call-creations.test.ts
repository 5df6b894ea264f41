import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { Reach } from '../../../accounts/organizations/reach.ts';
import { CallCreations, type CallCreationsParts } from './call-creations.ts';

const reach = {} as Reach;

/** Creations whose sandbox is destroyed at the given attempt. */
function build(attempt: number) {
  const seen = { attempts: 0, isDestroyed: false, warnings: [] as unknown[] };
  const destroy = async (): Promise<void> => {
    seen.attempts += 1;
    if (seen.attempts < attempt) throw new AppError('unavailable', 'the runner restarts');
    seen.isDestroyed = true;
  };
  const sandboxes = {
    find: async () => ({ status: seen.isDestroyed ? 'destroyed' : 'running' }),
    getDriver: async () => ({ destroy }),
  } as unknown as CallCreationsParts['sandboxes'];
  const log = { info: () => undefined, warn: (fields: unknown) => void seen.warnings.push(fields) };
  return { seen, creations: new CallCreations({ reach, sandboxes, log, retryMs: 1 }) };
}

test('a destroy that fails is tried again', async () => {
  const { seen, creations } = build(3);
  await creations.create(['run1'], async () => 'made');
  await creations.discard();
  assert.deepEqual([seen.attempts, seen.isDestroyed, seen.warnings], [3, true, []]);
});

test('a sandbox that cannot be destroyed is in the log', async () => {
  const { seen, creations } = build(Infinity);
  await assert.rejects(creations.create(['run1'], () => Promise.reject(new Error('no answer'))));
  await creations.discard();
  assert.equal(seen.warnings.length, 1);
  assert.match(JSON.stringify(seen.warnings), /"sandbox_id":"run1"/u);
});

test('the end of a create is waited for', async () => {
  const { seen, creations } = build(1);
  const made = Promise.withResolvers<string>();
  const created = creations.create(['run1'], () => made.promise);
  const discarded = creations.discard();
  await new Promise(setImmediate);
  assert.equal(seen.attempts, 0);
  made.resolve('made');
  assert.equal(await created, 'made');
  await discarded;
  assert.equal(seen.isDestroyed, true);
});
