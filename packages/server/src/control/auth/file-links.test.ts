/** Links by themselves; over HTTP they are in http/file-links.test.ts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FileLinks } from './file-links.ts';
import { Tickets } from './tickets.ts';

const KEY = Buffer.alloc(32, 7);
const FILE = {
  sandboxId: `run${'1'.repeat(20)}`,
  apiKeyId: 'key1',
  path: '/a b\n/é',
  method: 'download',
} as const;
const refused = (message: RegExp) => ({ code: 'unauthorized', message });

test('a link opens its file until it expires, as often as wanted', () => {
  const time = { now: 1_700_000_000_000 };
  const links = new FileLinks(KEY, () => time.now);
  const { token, expiresAt } = links.issue(FILE, 60);
  assert.equal(expiresAt, time.now + 60_000);
  assert.deepEqual([links.open(token), links.open(token)], [FILE, FILE]);
  time.now += 60_000;
  assert.throws(() => links.open(token), refused(/has expired/u));
});

test('links of one file differ, and have no character that a URL must escape', () => {
  const links = new FileLinks(KEY);
  const tokens = [links.issue(FILE, 60).token, links.issue(FILE, 60).token];
  assert.notEqual(tokens[0], tokens[1]);
  for (const token of tokens) assert.match(token, /^[\w.-]+$/u);
});

test('a forged link, one of another service, and a token of another purpose are refused', () => {
  const links = new FileLinks(KEY);
  const { token } = links.issue(FILE, 60);
  const [payload = '', mac = ''] = token.split('.');
  const other = Buffer.from(JSON.stringify({ ...FILE, path: '/etc/shadow' })).toString('base64url');
  const { ticket } = new Tickets(KEY, { add: () => Promise.resolve(true) }).issue(
    { sandboxId: FILE.sandboxId, apiKeyId: 'key1' },
    60,
  );
  const foreign = new FileLinks(Buffer.alloc(32, 8)).issue(FILE, 60).token;
  for (const one of [`${other}.${mac}`, `${payload}.${'A'.repeat(mac.length)}`, payload, '', ticket, foreign])
    assert.throws(() => links.open(one), refused(/not one of this service/u));
});

test('a path that makes a link too long to verify is refused', () => {
  const links = new FileLinks(KEY);
  assert.throws(() => links.issue({ ...FILE, path: `/${'x'.repeat(3000)}` }, 60), {
    code: 'invalid_request',
  });
  const path = `/${'é'.repeat(499)}`;
  assert.equal(links.open(links.issue({ ...FILE, path }, 60).token).path, path);
});
