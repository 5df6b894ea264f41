import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import { Secret } from '../../lib/secret.ts';
import { MASTER_KEY_BYTES, SecretBox, type SecretContext } from './secret-box.ts';

const CONTEXT: SecretContext = { organizationId: 'org1', purpose: 'registry-password', name: 'ghcr.io' };
const box = new SecretBox(randomBytes(MASTER_KEY_BYTES));

function isUnreadable(error: unknown): boolean {
  return (
    error instanceof AppError && error.code === 'secret_unreadable' && /store it again/.test(error.message)
  );
}

test('a sealed secret opens again, whatever characters it has', () => {
  for (const value of ['hunter2', 'pässwörd 🔑', 'x'.repeat(16_384), ''])
    assert.equal(box.open(box.seal(new Secret(value), CONTEXT), CONTEXT).reveal(), value);
});

test('two envelopes of the same secret differ, and neither contains its text', () => {
  const [a, b] = [box.seal(new Secret('hunter2'), CONTEXT), box.seal(new Secret('hunter2'), CONTEXT)];
  assert.ok(!a.equals(b));
  assert.ok(!a.includes('hunter2'));
});

test('a secret opens for no other organization, purpose or name, even if the joined texts are the same', () => {
  const sealed = box.seal(new Secret('hunter2'), CONTEXT);
  const others: SecretContext[] = [
    { ...CONTEXT, organizationId: 'org2' },
    { ...CONTEXT, purpose: 'other' },
    { ...CONTEXT, name: 'docker.io' },
    { organizationId: 'org1r', purpose: 'egistry-password', name: 'ghcr.io' },
  ];
  for (const other of others) assert.throws(() => box.open(sealed, other), isUnreadable);
});

test('another key, a changed byte anywhere and a cut envelope are reported as a secret to store again', () => {
  const sealed = box.seal(new Secret('hunter2'), CONTEXT);
  assert.throws(() => new SecretBox(randomBytes(MASTER_KEY_BYTES)).open(sealed, CONTEXT), isUnreadable);
  for (let index = 0; index < sealed.length; index += 1) {
    const changed = Buffer.from(sealed);
    changed[index] = (changed[index] ?? 0) ^ 1;
    assert.throws(() => box.open(changed, CONTEXT), isUnreadable, `byte ${index}`);
    assert.throws(() => box.open(sealed.subarray(0, index), CONTEXT), isUnreadable, `${index} bytes`);
  }
});

test('a secret of an older key opens while that key is known, and a secret that is sealed again does not need it', () => {
  const [older, current] = [randomBytes(MASTER_KEY_BYTES), randomBytes(MASTER_KEY_BYTES)];
  const sealed = new SecretBox(older).seal(new Secret('hunter2'), CONTEXT);
  const both = new SecretBox(current, [older]);
  assert.equal(both.isOutdated(sealed), true);
  const anew = both.seal(both.open(sealed, CONTEXT), CONTEXT);
  assert.equal(both.isOutdated(anew), false);
  assert.equal(new SecretBox(current).open(anew, CONTEXT).reveal(), 'hunter2');
  assert.throws(() => new SecretBox(current).open(sealed, CONTEXT), isUnreadable);
});
