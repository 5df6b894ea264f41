import assert from 'node:assert/strict';
import { test } from 'node:test';
import pino from 'pino';
import { purgeAll } from './purge-hourly.ts';

const log = pino({ level: 'silent' });

test('only the control that leads deletes what all share, and a failure does not hold up the rest', async () => {
  const purged: string[] = [];
  const purge = (name: string) => ({ purge: () => Promise.resolve(void purged.push(name)) });
  const failing = { purge: () => Promise.reject(new Error('the database is away')) };
  const parts = { shared: [failing, purge('shared')], own: [purge('own')], log };
  await purgeAll({ ...parts, ownership: { isLeading: false } });
  assert.deepEqual(purged, ['own']);
  await purgeAll({ ...parts, ownership: { isLeading: true } });
  assert.deepEqual(purged, ['own', 'own', 'shared']);
});
