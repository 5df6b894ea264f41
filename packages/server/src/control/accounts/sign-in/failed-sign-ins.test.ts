/** How many entries failed sign-ins leave. The entries themselves: audit/organization/organization-audit.test.ts. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sql } from 'kysely';
import pino from 'pino';
import { INVITATION, startHarness, waitFor, type ControlHarness } from '../../testing/control-harness.ts';
import { openOrganizationAudit, readOrganizationLog } from '../../testing/organization-log.ts';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { FailedSignIns } from './failed-sign-ins.ts';

let harness: ControlHarness;
let person: AccountClient;
before(async () => {
  harness = await startHarness();
  person = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());

test('a person has one entry in five minutes, whose number counts all attempts, and one at a stop', async () => {
  await using db = harness.openDatabase();
  let nowMs = 0;
  const audit = openOrganizationAudit(harness);
  const log = pino({ level: 'silent' });
  {
    await using failures = new FailedSignIns({ db, audit, log, now: () => nowMs });
    for (let index = 0; index < 100; index += 1) failures.note(person.id, '203.0.113.7');
    nowMs = 299_999;
    failures.note(person.id, '203.0.113.7');
    nowMs = 300_000;
    failures.note(person.id, '203.0.113.8');
    failures.note(person.id, '203.0.113.9');
  }
  const entries = await readOrganizationLog(harness, { query: '?event=session.failed' });
  assert.deepEqual(
    entries.map(({ data }) => Number(data['count'])).toSorted((a, b) => a - b),
    [1, 1, 101],
  );
});

test('attempts whose entry cannot be written are counted in the next one', async () => {
  await using db = harness.openDatabase();
  const audit = openOrganizationAudit(harness);
  const warnings: unknown[] = [];
  const log = { warn: (said: unknown) => void warnings.push(said) };
  const before = (await readOrganizationLog(harness, { query: '?event=session.failed' })).length;
  {
    await using failures = new FailedSignIns({ db, audit, log, now: () => 0 });
    await sql`
      ALTER TABLE organization_audit_entries ADD CONSTRAINT none CHECK (event <> 'session.failed') NOT VALID`.execute(
      db,
    );
    try {
      failures.note(person.id, '203.0.113.7');
      await waitFor('the refusal', () => Promise.resolve(warnings.length > 0));
    } finally {
      await sql`ALTER TABLE organization_audit_entries DROP CONSTRAINT none`.execute(db);
    }
    failures.note(person.id, '203.0.113.7');
  }
  const entries = await readOrganizationLog(harness, { query: '?event=session.failed' });
  assert.deepEqual(
    entries.slice(before).map(({ data }) => data['count']),
    [2],
  );
});
