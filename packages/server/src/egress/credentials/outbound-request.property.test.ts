import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import type { CredentialEndpoint } from '@coppice/contract';
import fc from 'fast-check';
import { buildHeaderList } from './request/outbound-request.ts';
import { build, SECRET } from './testing/proxied-request.ts';

test('no logged value contains the secret', () => {
  const result = build('openai', { rest: '/x' });
  assert.ok(result.ok);
  for (const text of [
    JSON.stringify(result),
    inspect(result, { depth: 9, showHidden: true }),
    String(result.value.authentication.value),
  ])
    assert.ok(!text.includes('0f1e2d3c'), text);
  assert.ok(buildHeaderList(result.value).some((value) => value.includes(SECRET)));
});

const hostileText = fc.oneof(
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 6 }) },
  {
    weight: 2,
    arbitrary: fc.constantFrom(
      '/',
      '..',
      '%2e',
      '%2f',
      '&',
      '=',
      ';',
      '\r\n',
      '\0',
      'chunked',
      'upgrade',
      'websocket',
    ),
  },
  { weight: 6, arbitrary: fc.constantFrom('a', 'B', 'key', '/', '?', '%41') },
);
const hostileName = fc.oneof(
  hostileText,
  fc.constantFrom(
    'Authorization',
    'x_api_key',
    'Connection',
    'Upgrade',
    'Host',
    'Content-Length',
    'Transfer-Encoding',
    'Cookie',
    'Accept',
  ),
);

test('for any input of the guest, one host is dialled, one secret is sent and none is revealed', () => {
  const headers = fc.array(fc.tuple(hostileName, hostileText), { maxLength: 6 });
  const rest = fc.array(hostileText, { maxLength: 8 });
  const endpoints: CredentialEndpoint[] = [{ methods: ['POST'], paths: ['/v1/safe/*'] }];
  let sent = 0;
  fc.assert(
    fc.property(rest, headers, (pieces, fields) => {
      const result = build('openai', { rest: `/safe/${pieces.join('')}`, headers: fields.flat(), endpoints });
      assert.ok(!JSON.stringify(result).includes(SECRET));
      if (!result.ok) return;
      sent++;
      const list = buildHeaderList(result.value);
      const names = list
        .filter((_, index) => index % 2 === 0)
        .map((name) => name.toLowerCase().replaceAll('_', '-'));
      for (const name of ['host', 'authorization'])
        assert.equal(names.filter((one) => one === name).length, 1);
      assert.equal(list.filter((text) => text.includes(SECRET)).length, 1);
      assert.ok(list.every((text) => !/[\r\n\0]/u.test(text)));
      const url = new URL(result.value.target, 'https://api.openai.com');
      assert.equal(url.pathname, result.value.path);
      assert.match(url.pathname, /^\/v1\/safe\//u);
      assert.doesNotMatch(result.value.target, /[^\x21-\x7e]|#/u);
    }),
    { numRuns: 10_000 },
  );
  assert.ok(sent > 500, `only ${sent} were sent`);
});
