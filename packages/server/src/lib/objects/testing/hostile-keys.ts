import assert from 'node:assert/strict';
import type { ObjectStore } from '../object-store.ts';

const HOSTILE_KEYS = ['', '.', '..', '../x', 'a/../../x', '/etc/passwd', 'a//b', 'a/', '.incoming/x', 'a\0b'];
const INVALID_KEYS = ['a\\b', 'é', 'a'.repeat(201), `${'a/'.repeat(460)}a`];

/** Asserts that every operation on an object refuses keys that lead out of a store, and keys that are not valid. */
export async function assertInvalidKeysRefused(objects: ObjectStore): Promise<void> {
  const refusal = { code: 'invalid_request' };
  for (const key of [...HOSTILE_KEYS, ...INVALID_KEYS]) {
    await assert.rejects(objects.put(key, ['x']), refusal, key);
    await assert.rejects(objects.putIfAbsent(key, ['x']), refusal, key);
    await assert.rejects(Array.fromAsync(objects.get(key)), refusal, key);
    await assert.rejects(objects.delete(key), refusal, key);
  }
}
