import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ApiKeyRecord } from '../../../../contract/src/accounts/team-keys.ts';
import { endsSoon, exportLine, keyState } from './key-state.ts';

const NOW = Date.parse('2026-11-27T10:00:00.000Z');
const DAY_MS = 86_400_000;
const at = (days: number): string => new Date(NOW + days * DAY_MS).toISOString();

function key(fields: Partial<ApiKeyRecord>): ApiKeyRecord {
  return {
    id: 'key1',
    name: 'ci',
    last4: 'x1Yz',
    scope: 'full',
    team_only: false,
    created_at: at(-1),
    last_used_at: null,
    expires_at: null,
    revoked_at: null,
    ...fields,
  };
}

test('a key is active until it is revoked or expires', () => {
  assert.equal(keyState(key({}), NOW), 'active');
  assert.equal(keyState(key({ expires_at: at(1) }), NOW), 'active');
  assert.equal(keyState(key({ expires_at: at(0) }), NOW), 'expired');
  assert.equal(keyState(key({ expires_at: at(-1), revoked_at: at(-2) }), NOW), 'revoked');
});

test('only an active key ends soon', () => {
  assert.equal(endsSoon(key({ expires_at: at(6) }), NOW), true);
  assert.equal(endsSoon(key({ expires_at: at(8) }), NOW), false);
  assert.equal(endsSoon(key({ expires_at: at(-1) }), NOW), false);
  assert.equal(endsSoon(key({ expires_at: at(6), revoked_at: at(-1) }), NOW), false);
  assert.equal(endsSoon(key({}), NOW), false);
});

test('the line for a shell has the key as it is', () => {
  assert.equal(exportLine('cop_live_local_abc'), 'export SANDBOX_API_KEY=cop_live_local_abc');
});
