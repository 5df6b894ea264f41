/** Concurrent callers of getOrCreate on a real control: the service decides, and all get the same sandbox. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { AppError } from '@coppice/contract';
import {
  API_KEY,
  startHarness,
  type ControlHarness,
} from '../../server/src/control/testing/control-harness.ts';
import { Coppice } from '../src/index.ts';

const CALLERS = 6;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness?.[Symbol.asyncDispose]());

function connect(): Coppice {
  return new Coppice({ apiKey: API_KEY, baseUrl: harness.address, maxRetries: 0 });
}

/** Calls getOrCreate from several clients at once and returns the ids that they get. */
async function callAtOnce(name: string): Promise<string[]> {
  const calls = Array.from({ length: CALLERS }, () => connect().sandboxes.getOrCreate({ name }));
  const sandboxes = await Promise.all(calls);
  assert.deepEqual([...new Set(sandboxes.map(({ status }) => status))], ['running']);
  return [...new Set(sandboxes.map(({ id }) => id))];
}

test('of callers at once, one creates the sandbox, and the others wait until it runs', async (t) => {
  t.after(() => (harness.runner.onCreate = () => undefined));
  harness.runner.onCreate = () => sleep(300);
  const creates = harness.runner.creates.length;
  const [id, ...others] = await callAtOnce('race');
  assert.deepEqual(others, []);
  assert.equal(harness.runner.creates.length, creates + 1);
  assert.deepEqual(await callAtOnce('race'), [id]);
});

test('callers at once resume a hibernated sandbox once', async () => {
  const sandbox = await connect().sandboxes.create({ name: 'saved' });
  await sandbox.hibernate();
  assert.deepEqual(await callAtOnce('saved'), [sandbox.id]);
});

test('a sandbox that has ended is created again, by one of the callers', async () => {
  const sandbox = await connect().sandboxes.create({ name: 'again' });
  await sandbox.destroy();
  const [id, ...others] = await callAtOnce('again');
  assert.deepEqual(others, []);
  assert.notEqual(id, sandbox.id);
});

test('a create that fails is the error of its caller, and the others try again', async (t) => {
  t.after(() => (harness.runner.onCreate = () => undefined));
  let failures = 0;
  harness.runner.onCreate = async () => {
    await sleep(100);
    failures += 1;
    if (failures === 1) throw new AppError('registry_unavailable', 'the registry is away');
  };
  const calls = Array.from({ length: CALLERS }, () => connect().sandboxes.getOrCreate({ name: 'failing' }));
  const outcomes = await Promise.allSettled(calls);
  const ids = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? outcome.value.id : []));
  assert.equal(ids.length, CALLERS - 1);
  assert.equal(new Set(ids).size, 1);
});

test('an existing sandbox is found on a full machine', async (t) => {
  const sandbox = await connect().sandboxes.create({ name: 'full' });
  t.after(() => (harness.runner.onAdmission = () => undefined));
  harness.runner.onAdmission = () => {
    throw new AppError('capacity', 'the machine is full');
  };
  assert.deepEqual(await callAtOnce('full'), [sandbox.id]);
  await assert.rejects(connect().sandboxes.getOrCreate({ name: 'another' }), { code: 'capacity' });
});
