import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { afterEach, beforeEach, test } from 'node:test';
import type { ClientOptions } from './client-options.ts';
import { Coppice } from '../coppice.ts';
import { LoopbackServer, TEST_KEY, wireRecord } from '../testing/loopback-server.ts';

const VARIABLES = [
  'SANDBOX_API_KEY',
  'SANDBOX_BASE_URL',
  'SANDBOX_BASE_URL_TEMPLATE',
  'SANDBOX_ALLOW_PLAIN_HTTP',
];
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

test('construction fails without a key and names the sources of a key', () => {
  assert.throws(() => new Coppice(), /SANDBOX_API_KEY/);
  process.env['SANDBOX_API_KEY'] = '';
  assert.throws(() => new Coppice(), /SANDBOX_API_KEY/);
  assert.throws(() => new Coppice({ apiKey: '' }), TypeError);
});

test('the key of the environment is sent as bearer, and the option overrides it', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord());
  process.env['SANDBOX_API_KEY'] = 'cop_live_us_fromtheenvironment';
  process.env['SANDBOX_BASE_URL'] = server.url;
  await new Coppice().sandboxes.get('run1');
  assert.equal(server.last.headers.authorization, 'Bearer cop_live_us_fromtheenvironment');
  await new Coppice({ apiKey: TEST_KEY }).sandboxes.get('run1');
  assert.equal(server.last.headers.authorization, `Bearer ${TEST_KEY}`);
});

test('without an address the key is sent only to this machine, for any region', async () => {
  const urls: string[] = [];
  const fetch = async (url: string): Promise<Response> => {
    urls.push(url);
    return Response.json([]);
  };
  for (const apiKey of [TEST_KEY, 'cop_live_eu_abc', 'anything']) {
    const client = new Coppice({ apiKey, fetch });
    assert.equal(client.baseUrl, 'http://127.0.0.1:8080');
    await client.images.list();
  }
  assert.deepEqual([...new Set(urls)], ['http://127.0.0.1:8080/v1/images']);
  process.env['SANDBOX_BASE_URL'] = '';
  assert.equal(new Coppice({ apiKey: TEST_KEY, baseUrl: '' }).baseUrl, 'http://127.0.0.1:8080');
});

test('in a page without an environment the default is also this machine', () => {
  const { process } = globalThis;
  Reflect.deleteProperty(globalThis, 'process');
  try {
    assert.equal(new Coppice({ apiKey: TEST_KEY }).baseUrl, 'http://127.0.0.1:8080');
  } finally {
    globalThis.process = process;
  }
});

test('the base URL comes from the option, the environment or the template, in this order', () => {
  const apiKey = 'cop_live_eu_abc';
  const urlOf = (options: ClientOptions = {}): string => new Coppice({ apiKey, ...options }).baseUrl;
  process.env['SANDBOX_BASE_URL_TEMPLATE'] = 'https://{region}.env.example/{region}/';
  assert.equal(urlOf(), 'https://eu.env.example/eu');
  const template = { baseUrlTemplate: 'https://{region}.option.example' };
  assert.equal(urlOf(template), 'https://eu.option.example');
  process.env['SANDBOX_BASE_URL'] = 'https://10.0.0.1:8443/';
  assert.equal(urlOf(template), 'https://10.0.0.1:8443');
  assert.equal(urlOf({ ...template, baseUrl: 'https://h/coppice//' }), 'https://h/coppice');
});

test('a template needs a placeholder for the region and a key that contains a region', () => {
  const baseUrlTemplate = 'https://{region}.api.example';
  const odd = { apiKey: 'cop_live_us.evil.example_x', baseUrlTemplate };
  assert.throws(() => new Coppice(odd), /names no region for baseUrlTemplate.*SANDBOX_BASE_URL/);
  assert.doesNotThrow(() => new Coppice({ ...odd, baseUrl: 'http://127.0.0.1:1' }));
  process.env['SANDBOX_BASE_URL_TEMPLATE'] = 'https://api.example';
  assert.throws(() => new Coppice({ apiKey: TEST_KEY }), /SANDBOX_BASE_URL_TEMPLATE must hold \{region\}/);
});

test('a key is sent over plain HTTP only to this machine, unless other hosts are allowed', () => {
  const apiKey = TEST_KEY;
  for (const host of ['127.0.0.1', '127.8.8.8', '[::1]', 'localhost:8080', 'coppice.localhost', '2130706433'])
    assert.doesNotThrow(() => new Coppice({ apiKey, baseUrl: `http://${host}` }), host);
  for (const host of ['10.0.0.1', 'h', '[::2]', 'localhost.example', '127.0.0.1.example', '128.0.0.1']) {
    const baseUrl = `http://${host}`;
    assert.throws(() => new Coppice({ apiKey, baseUrl }), /baseUrl: .*plain HTTP.*allowPlainHttp/, host);
    assert.doesNotThrow(() => new Coppice({ apiKey, baseUrl, allowPlainHttp: true }), host);
  }
  process.env['SANDBOX_BASE_URL'] = 'http://coppice.internal:8080';
  assert.throws(() => new Coppice({ apiKey }), /SANDBOX_BASE_URL: .*SANDBOX_ALLOW_PLAIN_HTTP/);
  process.env['SANDBOX_ALLOW_PLAIN_HTTP'] = 'true';
  assert.equal(new Coppice({ apiKey }).baseUrl, 'http://coppice.internal:8080');
  assert.throws(() => new Coppice({ apiKey, allowPlainHttp: false }), /plain HTTP/);
});

test('an unusable base URL is refused', () => {
  for (const baseUrl of ['localhost:8080', 'ftp://h', 'nonsense', 'http://h/?a=1', 'http://u:p@h']) {
    assert.throws(() => new Coppice({ apiKey: TEST_KEY, baseUrl }), /baseUrl/, baseUrl);
  }
});

test('timeouts and retries out of range are refused by name', () => {
  assert.throws(() => new Coppice({ apiKey: TEST_KEY, timeoutMs: 0 }), /timeoutMs/);
  assert.throws(() => new Coppice({ apiKey: TEST_KEY, timeoutMs: Number.NaN }), /timeoutMs/);
  assert.throws(() => new Coppice({ apiKey: TEST_KEY, maxRetries: -1 }), /maxRetries/);
});

test('a key that is invalid in a header is refused, and the message does not include it', () => {
  assert.throws(
    () => new Coppice({ apiKey: 'cop_live_us_sec\nret', baseUrl: 'http://127.0.0.1:1' }),
    (error) => error instanceof TypeError && !error.message.includes('sec'),
  );
});

test('a printed client does not include the key', async () => {
  await using server = await LoopbackServer.answering(200, wireRecord());
  const client = server.client();
  const printed = inspect([client, await client.sandboxes.get('run1')], { depth: 9, showHidden: true });
  assert.ok(!printed.includes(TEST_KEY) && !JSON.stringify(client).includes(TEST_KEY));
});

test('the option fetch is used for every call', async () => {
  const urls: string[] = [];
  const client = new Coppice({
    apiKey: TEST_KEY,
    baseUrl: 'https://mock',
    fetch: async (url) => {
      urls.push(url);
      return Response.json([]);
    },
  });
  await client.images.list();
  assert.deepEqual(urls, ['https://mock/v1/images']);
});
