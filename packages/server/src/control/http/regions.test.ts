/** Keys of other regions, at a control that knows the address of one of them. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { generateApiKey } from '@coppice/contract';
import { startHarnessWith, type ControlHarness } from '../testing/control-harness.ts';

const EU = 'https://eu.api.example.com';
/** Clients show this much of the body of an error. */
const SHOWN_BYTES = 200;

let harness: ControlHarness;
before(async () => {
  harness = await startHarnessWith({
    regionAddresses: new Map([['eu', EU]]),
    limits: { wrongKeysPerMinute: 5 },
  });
});
after(() => harness[Symbol.asyncDispose]());

test('a key of a region with a known address is sent there, in what clients show and in a field', async () => {
  const response = await harness.fetch('GET', '/v1/runs', { apiKey: generateApiKey('eu') });
  assert.equal(response.status, 401);
  const text = await response.text();
  assert.ok(text.slice(0, SHOWN_BYTES).includes(EU), text);
  assert.deepEqual(JSON.parse(text).error.region, { name: 'eu', base_url: EU });
});

test('a key of a region without a known address names the region', async () => {
  const { status, body } = await harness.call('GET', '/v1/runs', { apiKey: generateApiKey('ap') });
  assert.equal(status, 401);
  assert.match(body.error.message, /belongs to region "ap": use the service of "ap"/u);
  assert.deepEqual(body.error.region, { name: 'ap', base_url: null });
});

test('other errors name no region', async () => {
  const unknown = await harness.call('GET', '/v1/runs', { apiKey: generateApiKey('us') });
  assert.deepEqual(Object.keys(unknown.body.error), ['code', 'message', 'request_id']);
});

test('a key of another region stays explained, however often it is tried', async () => {
  const apiKey = generateApiKey('eu');
  for (let attempt = 0; attempt < 20; attempt += 1)
    assert.equal((await harness.call('GET', '/v1/runs', { apiKey })).status, 401);
});
