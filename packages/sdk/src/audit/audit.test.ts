import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AuditEntry } from './audit-entry.ts';
import { LoopbackServer, SANDBOX_ID } from '../testing/loopback-server.ts';

const WIRE = {
  seq: 1,
  ts: '2026-11-22T00:00:00.000Z',
  sandbox_id: SANDBOX_ID,
  event: 'exec.start',
  data: { command: 'é', start_seq: 1 },
  hmac: `sha256:${'0'.repeat(64)}`,
};
const { sandbox_id: sandboxId, ...rest } = WIRE;
const SHOWN = { ...rest, sandboxId };

async function collect(entries: AsyncIterable<AuditEntry>): Promise<AuditEntry[]> {
  const all: AuditEntry[] = [];
  for await (const entry of entries) all.push(entry);
  return all;
}

test('entries are yielded one by one with their data unchanged, and empty lines are skipped', async () => {
  await using server = await LoopbackServer.start((_, response) => {
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    const line = `${JSON.stringify(WIRE)}\n`;
    response.write(line.slice(0, 30));
    response.end(`${line.slice(30)}\n\n${line}`);
  });
  const entries = await collect(server.sandbox().audit({ follow: true, after: 7 }));
  assert.deepEqual(entries, [SHOWN, SHOWN]);
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/audit?follow=true&after=7`);
  await collect(server.sandbox().audit());
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/audit`);
});

test('a line that is not an entry is an error with code invalid_response', async () => {
  await using server = await LoopbackServer.start((_, response) => void response.end('{"seq":1}\n'));
  await assert.rejects(collect(server.sandbox().audit()), { code: 'invalid_response' });
});

test('the head has number and hash of the last entry, or null as hash for an empty log', async () => {
  await using server = await LoopbackServer.answering(200, { seq: 0, hmac: null });
  assert.deepEqual(await server.sandbox().auditHead(), { seq: 0, hmac: null });
  assert.equal(server.last.url, `/v1/runs/${SANDBOX_ID}/audit?head=true`);
});
