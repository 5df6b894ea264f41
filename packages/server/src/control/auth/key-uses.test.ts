import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { generateApiKey } from '@coppice/contract';
import pino from 'pino';
import { startTwoLeases, type TwoLeases } from '../testing/controls/two-leases.ts';
import { ensureApiKey } from './api-key-store.ts';
import { KeyUses } from './key-uses.ts';

const HOUR_MS = 3_600_000;

let controls: TwoLeases;
beforeEach(async () => (controls = await startTwoLeases()));
afterEach(() => controls[Symbol.asyncDispose]());

test('a use that one control writes late does not hide a later one at another control', async () => {
  const { db, owner } = controls;
  const key = await ensureApiKey(db, owner, generateApiKey('us'));
  assert.ok(key);
  const sessions = { extendByKeys: () => Promise.resolve() };
  const parts = { db, sessions, log: pino({ level: 'silent' }) };
  await using first = new KeyUses(parts, HOUR_MS);
  await using second = new KeyUses(parts, HOUR_MS);
  first.note(key.id);
  await delay(20);
  const later = Date.now();
  second.note(key.id);
  await second.write();
  await first.write();
  const query = db.selectFrom('api_keys').select('last_used_at').where('id', '=', key.id);
  const { last_used_at: usedAt } = await query.executeTakeFirstOrThrow();
  assert.ok((usedAt ?? 0) >= later, `${usedAt} is before ${later}`);
});
