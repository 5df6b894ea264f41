/**
 * Every example of the client compiles and runs against a real control, whose guests are those of the fake runner. The
 * examples that act in a guest also run on virtual machines: e2e/sdk/sdk-examples.test.ts.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  API_KEY,
  startHarness,
  type ControlHarness,
} from '../../../server/src/control/testing/control-harness.ts';
import { answerLikeGuests } from '../fixtures/simple-guest.ts';
import { findExamples, type Example } from './find-examples.ts';
import { Programs } from './programs.ts';

/** They would not end, or need a message of the service; their own tests do both. */
const NOT_RUN = /^packages\/sdk\/src\/webhooks\/verify-webhook|client\.events\(/mu;

const examples = findExamples();
const isRun = ({ place, code }: Example): boolean => !NOT_RUN.test(place) && !NOT_RUN.test(code);
let harness: ControlHarness;
let programs: Programs;
before(async () => {
  programs = await Programs.write(examples);
  harness = await startHarness({ requestsPerSecond: 1000, requestBurst: 1000 });
  answerLikeGuests(harness.runner);
});
after(async () => {
  await harness?.[Symbol.asyncDispose]();
  await programs?.[Symbol.asyncDispose]();
});

test('all examples are found', () => {
  const count = (pattern: RegExp): number => examples.filter(({ place }) => pattern.test(place)).length;
  assert.ok(count(/^packages\/sdk\/src\//u) >= 110, `${count(/src/u)} in the sources`);
  assert.ok(count(/^packages\/sdk\/README/u) >= 5);
  assert.ok(count(/^README/u) >= 1);
  assert.ok(count(/^docs\/guides\//u) >= 3);
  assert.deepEqual(
    examples.filter(({ code }) => code.trim() === ''),
    [],
  );
});

test('every example compiles', async () => {
  assert.deepEqual(await programs.compile(), []);
});

test('every example runs', async () => {
  await using running = await Programs.write(examples.filter(isRun));
  assert.ok(examples.filter((example) => !isRun(example)).length <= 3);
  const results = await running.run({ baseUrl: harness.address, apiKey: API_KEY, image: 'node:22-slim' });
  assert.equal(results.length, examples.filter(isRun).length);
  const failed = results.filter(({ error }) => error !== undefined);
  assert.deepEqual(
    failed.map(({ place, error }) => `${place}: ${error}`),
    [],
  );
});
