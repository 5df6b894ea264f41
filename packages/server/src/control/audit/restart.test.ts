/** Audit logs across restarts: the next control finds all answered commands in an unbroken chain, and continues it. */
import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import type { AuditEntry, AuditHead } from '@coppice/contract';
import { sql } from 'kysely';
import { MASTER_KEY_NAME } from '../secrets/master-key.ts';
import { MASTER_KEY_BYTES } from '../secrets/secret-box.ts';
import { startHarness, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { verifyLog } from '../testing/verify-log.ts';

async function readLog(harness: ControlHarness, id: string): Promise<AuditEntry[]> {
  const text = await (await harness.fetch('GET', `/v1/runs/${id}/audit`)).text();
  const lines = text.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as AuditEntry);
}

const exec = (harness: ControlHarness, id: string, command: string) =>
  harness.call('POST', `/v1/runs/${id}/exec`, { body: { command } });

test('a control that is stopped in mid-burst leaves all commands that it answered in the log', async () => {
  await using harness = await startHarness({ shutdownDeadlineMs: 20 });
  harness.runner.onExec = (command) => command.exit(0);
  const { id } = await harness.create();
  const answered: string[] = [];
  const work = async (worker: number): Promise<void> => {
    for (let count = 0; ; count += 1) {
      const command = `echo ${worker}-${count}`;
      const answer = await exec(harness, id, command).catch(() => undefined);
      if (answer?.status !== 200) return;
      answered.push(command);
    }
  };
  const burst = [0, 1, 2, 3].map(work);
  await waitFor('some answers', () => answered.length > 20);
  await harness.stopControl();
  await Promise.all(burst);
  await harness.startControl();
  await exec(harness, id, 'echo afterwards');
  const log = await readLog(harness, id);
  assert.deepEqual(
    log.map(({ seq }) => seq),
    log.map((_, index) => index + 1),
  );
  const exits = new Set(log.filter(({ event }) => event === 'exec.exit').map(({ data }) => data['command']));
  assert.ok([...answered, 'echo afterwards'].every((command) => exits.has(command)));
});

test('an end that the runner reports while control is down is the last entry, once', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await harness.stopControl();
  harness.runner.endVm(id, 'guest_shutdown');
  await harness.startControl();
  await harness.waitForRecord(id, (record) => record.status === 'destroyed');
  await harness.stopControl();
  await harness.startControl();
  const log = await readLog(harness, id);
  assert.deepEqual(
    log.map(({ event, data }) => [event, data['reason']]),
    [
      ['sandbox.created', undefined],
      ['sandbox.destroyed', 'guest_shutdown'],
    ],
  );
});

test('an exec is answered only when its entries are written, and waits for a database that is blocked for a short time', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await using db = harness.openDatabase();
  const isLocked = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  const locking = db.transaction().execute(async (transaction) => {
    await sql`LOCK TABLE audit_entries IN ACCESS EXCLUSIVE MODE`.execute(transaction);
    isLocked.resolve();
    await gate.promise;
  });
  await isLocked.promise;
  let isAnswered = false;
  const answer = exec(harness, id, 'true').finally(() => (isAnswered = true));
  await waitFor('the command to run', () =>
    harness.runner.requests.some((request) => request.includes('exec')),
  );
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).status, 200);
  assert.equal(isAnswered, false);
  gate.resolve();
  await locking;
  assert.equal((await answer).status, 200);
  assert.equal((await readLog(harness, id)).length, 3);
});

test('with another master key, running sandboxes still end, without a last entry, and new ones have a log', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  const { id: ended } = await harness.create();
  await harness.stopControl();
  await writeFile(join(harness.directory, 'data', MASTER_KEY_NAME), Buffer.alloc(MASTER_KEY_BYTES, 9));
  await harness.startControl();
  const refused = await exec(harness, id, 'true');
  assert.deepEqual([refused.status, refused.body.error.code], [409, 'secret_unreadable']);
  assert.match(refused.body.error.message, /put that one back \(master\.key\), or destroy/u);
  harness.runner.endVm(ended, 'guest_shutdown');
  await harness.waitForRecord(ended, (record) => record.status === 'destroyed');
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  await waitFor('the ends to be acknowledged', () => harness.runner.ends.size === 0);
  assert.deepEqual(
    (await readLog(harness, id)).map(({ event }) => event),
    ['sandbox.created'],
  );
  await waitFor('the events of both ends', async () => {
    const told = (await harness.call('GET', '/v1/events?type=sandbox.destroyed')).body;
    return isDeepStrictEqual(
      told.map((event: { run_id: string }) => event.run_id).toSorted(),
      [id, ended].toSorted(),
    );
  });
  const { id: next } = await harness.create();
  assert.equal(await verifyLog(harness, next), 1);
});

test('a sandbox that is older than audit logs gets one with its next entry', async () => {
  await using harness = await startHarness();
  const { id } = await harness.create();
  await harness.stopControl();
  await harness.startControl();
  await using db = harness.openDatabase();
  await sql`ALTER TABLE audit_entries DISABLE TRIGGER audit_entries_are_final`.execute(db);
  await db.deleteFrom('audit_entries').execute();
  await db.updateTable('sandboxes').set({ audit_key_id: null }).execute();
  const path = `/v1/runs/${id}/audit?head=true`;
  assert.deepEqual((await harness.call('GET', path)).body, { seq: 0, hmac: null });
  await exec(harness, id, 'true');
  assert.equal(((await harness.call('GET', path)).body as AuditHead).seq, 2);
  const row = await db.selectFrom('sandboxes').select('audit_key_id').executeTakeFirstOrThrow();
  assert.match(String(row.audit_key_id), /^ask[0-9a-f]{20}$/u);
});
