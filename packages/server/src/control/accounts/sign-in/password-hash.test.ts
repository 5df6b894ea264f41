import assert from 'node:assert/strict';
import { argon2Sync } from 'node:crypto';
import { test } from 'node:test';
import { hashPassword, verifyPassword } from './password-hash.ts';

test('the right password is accepted, another one is not, and no two hashes are equal', async () => {
  const stored = await hashPassword('correct horse battery');
  assert.match(stored, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}$/);
  assert.deepEqual(await verifyPassword('correct horse battery', stored), {
    isRight: true,
    isOutdated: false,
  });
  assert.equal((await verifyPassword('correct horse batterY', stored)).isRight, false);
  assert.notEqual(await hashPassword('correct horse battery'), stored);
});

test('the Unicode composition of a password’s letters makes no difference', async () => {
  const stored = await hashPassword('pass\u00e9 compos\u00e9');
  assert.equal((await verifyPassword('passe\u0301 compose\u0301', stored)).isRight, true);
});

test('a hash with other parameters is verified with those and reported as outdated', async () => {
  const nonce = Buffer.alloc(16, 7);
  const options = { memory: 64, passes: 1, parallelism: 2, tagLength: 32, nonce };
  const hash = argon2Sync('argon2id', { message: 'correct horse battery', ...options });
  const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64').replace(/=+$/, '');
  const stored = `$argon2id$v=19$m=64,t=1,p=2$${text(nonce)}$${text(hash)}`;
  assert.deepEqual(await verifyPassword('correct horse battery', stored), {
    isRight: true,
    isOutdated: true,
  });
});

test('a malformed hash is an error, not a wrong password', async () => {
  await assert.rejects(verifyPassword('x', 'plain'), /form that this version does not know/);
});
