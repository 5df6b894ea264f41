import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { afterEach, beforeEach, test } from 'node:test';
import { Coppice } from './coppice.ts';
import { LoopbackServer, TEST_KEY, wireRecord } from './testing/loopback-server.ts';

const VARIABLES = ['SANDBOX_API_KEY', 'SANDBOX_BASE_URL'];
let saved: (string | undefined)[] = [];

beforeEach(() => {
  saved = VARIABLES.map((name) => process.env[name]);
  for (const name of VARIABLES) delete process.env[name];
});

afterEach(() => {
  VARIABLES.forEach((name, index) => {
    const value = saved[index];
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  });
});

test('construction fails without a key and says where one can come from', () => {
  assert.throws(() => new Coppice(), /SANDBOX_API_KEY/);
  process.env['SANDBOX_API_KEY'] = '';
  assert.throws(() => new Coppice(), /SANDBOX_API_KEY/);
  assert.throws(() => new Coppice({ apiKey: '' }), TypeError);
});

test('the key of the environment is sent as bearer, and the option wins over it', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord());
  process.env['SANDBOX_API_KEY'] = 'cop_live_us_fromtheenvironment';
  process.env['SANDBOX_BASE_URL'] = server.url;
  await new Coppice().sandboxes.get('run1');
  assert.equal(server.last.headers.authorization, 'Bearer cop_live_us_fromtheenvironment');
  await new Coppice({ apiKey: TEST_KEY }).sandboxes.get('run1');
  assert.equal(server.last.headers.authorization, `Bearer ${TEST_KEY}`);
});

test('the base URL comes from the option, then the environment, then the region of the key', () => {
  assert.equal(new Coppice({ apiKey: 'cop_live_eu_abc' }).baseUrl, 'https://eu.api.coppice.dev');
  process.env['SANDBOX_BASE_URL'] = 'http://10.0.0.1:8080/';
  assert.equal(new Coppice({ apiKey: TEST_KEY }).baseUrl, 'http://10.0.0.1:8080');
  assert.equal(
    new Coppice({ apiKey: TEST_KEY, baseUrl: 'https://h/coppice//' }).baseUrl,
    'https://h/coppice',
  );
});

test('a key that names no region needs a base URL', () => {
  assert.throws(() => new Coppice({ apiKey: 'cop_live_us.evil.example_x' }), /baseUrl/);
  assert.doesNotThrow(() => new Coppice({ apiKey: 'anything', baseUrl: 'http://127.0.0.1:1' }));
});

test('a base URL that cannot be used is refused', () => {
  for (const baseUrl of ['localhost:8080', 'ftp://h', 'nonsense', 'http://h/?a=1', 'http://u:p@h']) {
    assert.throws(() => new Coppice({ apiKey: TEST_KEY, baseUrl }), /baseUrl/, baseUrl);
  }
});

test('timeouts and retries out of range are refused by name', () => {
  assert.throws(() => new Coppice({ apiKey: TEST_KEY, timeoutMs: 0 }), /timeoutMs/);
  assert.throws(() => new Coppice({ apiKey: TEST_KEY, timeoutMs: Number.NaN }), /timeoutMs/);
  assert.throws(() => new Coppice({ apiKey: TEST_KEY, maxRetries: -1 }), /maxRetries/);
});

test('a key that no header can carry is refused without being shown', () => {
  assert.throws(
    () => new Coppice({ apiKey: 'cop_live_us_sec\nret', baseUrl: 'http://127.0.0.1:1' }),
    (error) => error instanceof TypeError && !error.message.includes('sec'),
  );
});

test('a client that is printed shows no key', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord());
  const client = server.client();
  const printed = inspect([client, await client.sandboxes.get('run1')], { depth: 9, showHidden: true });
  assert.ok(!printed.includes(TEST_KEY) && !JSON.stringify(client).includes(TEST_KEY));
});

test('a fetch of your own is used for every call', async () => {
  const urls: string[] = [];
  const client = new Coppice({
    apiKey: TEST_KEY,
    baseUrl: 'http://mock',
    fetch: async (url) => {
      urls.push(url);
      return Response.json([]);
    },
  });
  await client.images.list();
  assert.deepEqual(urls, ['http://mock/v1/images']);
});
